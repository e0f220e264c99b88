"""Pre-training that also predicts masked tokens from the state after half of the layers."""

from typing import Any, Dict, Sequence, Tuple

import torch.nn.functional as F
from fairseq.criterions import register_criterion
from fairseq.criterions.masked_lm import MaskedLmConfig
from fairseq.tasks import register_task
from fairseq.tasks.masked_lm import MaskedLMConfig, MaskedLMTask
from torch import Tensor, nn

from fairseq_posenc.layers.heads import PRETRAINING, StateHead, register_head
from fairseq_posenc.models.masked_lm import register_pretraining
from fairseq_posenc.training.base import Sums
from fairseq_posenc.training.masked_lm import MaskedLMAccuracyCriterion, Recorded

TASK = "masked_lm_middle"
register_pretraining(TASK)
PRETRAINING["middle_head"] = f"--task {TASK}"  # fine-tuning leaves the head out


@register_head("middle", paper="", summary="predicts masked tokens after half of the layers")
class MiddleHead(StateHead):
    """Logits E W x, with the state x after half of the layers and the token embeddings E."""

    module = "middle_head"
    reads_all = True  # otherwise `states` has only the last state

    def add(self, model: Any) -> None:
        """Add W, which projects states to the size of an embedding."""
        model.middle_head = nn.Linear(model.args.encoder_embed_dim, model.args.encoder_input_dim)

    def read(self, model: Any, states: Sequence[Tensor], **inputs: Any) -> Tensor:
        """Logits (N, V) of the N tokens at which *masked* (B, T) is True; states are (B, T, C)."""
        x = model.middle_head(states[len(states) // 2][inputs["masked"]])
        return F.linear(x, model.encoder.sentence_encoder.embed_tokens.weight)


@register_task(TASK, dataclass=MaskedLMConfig)
class MiddleTask(MaskedLMTask):
    """The task ``masked_lm``, for models with the head."""

    def build_model(self, args: Any, from_checkpoint: bool = False) -> nn.Module:
        """Build the model, and add the head."""
        model = super().build_model(args, from_checkpoint)
        model.add_head("middle")
        return model


@register_criterion(TASK, dataclass=MaskedLmConfig)
class MiddleCriterion(MaskedLMAccuracyCriterion):
    """The loss of masked language modelling, plus the loss of the head."""

    def forward(
        self, model: Any, sample: Dict[str, Any], reduce: bool = True
    ) -> Tuple[Tensor, Tensor, Dict[str, Any]]:
        """The sum of both losses over the masked tokens, the number of tokens, and the log."""
        masked = sample["target"].ne(self.padding_idx)
        recorded = Recorded(model, heads={"middle": {"masked": masked}})
        loss, size, log = super().forward(recorded, sample, reduce)
        logits = recorded.output[1]["middle"].float()
        middle = F.cross_entropy(logits, sample["target"][masked], reduction="sum")
        return loss + middle, size, {**log, "middle_loss": middle.detach()}

    @staticmethod
    def reduce_metrics(logging_outputs: Any) -> None:
        """Log the loss of the head in bits, beside what the base class logs."""
        MaskedLMAccuracyCriterion.reduce_metrics(logging_outputs)
        sums = Sums(logging_outputs)
        sums.log_bits("middle_loss", sums["sample_size"])
