"""Loss and accuracy of masked tokens.

BERT, Devlin et al., arXiv 1810.04805, section 3.1.
"""

from typing import Any, Dict, List, Tuple

from fairseq.criterions import register_criterion
from fairseq.criterions.masked_lm import MaskedLmConfig, MaskedLmLoss
from fairseq.logging import metrics
from fairseq.models import BaseFairseqModel
from torch import Tensor

from fairseq_posenc.training.base import Sums


class Recorded:
    """Wraps a model: keeps its output for further losses, and adds *inputs* to each call.

    fairseq's criterions call the model and return only the loss.  If they get this object in place
    of the model, the model's output is in ``output`` afterwards.
    """

    def __init__(self, model: BaseFairseqModel, **inputs: object) -> None:
        self.model, self.inputs = model, inputs
        self.output: Any = None

    def __call__(self, **inputs: object) -> Any:
        """Call the model, and keep what it returns in ``output``."""
        self.output = self.model(**inputs, **self.inputs)
        return self.output

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)


@register_criterion("masked_lm_accuracy", dataclass=MaskedLmConfig)
class MaskedLMAccuracyCriterion(MaskedLmLoss):
    """fairseq's ``masked_lm``, with the accuracy on the tokens to predict, as papers report it.

    The loss is fairseq's.  ``accuracy`` is the percentage of the selected tokens (masked, replaced
    or unchanged) whose most probable prediction is the original token; to select checkpoints by it,
    give ``--best-checkpoint-metric accuracy --maximize-best-checkpoint-metric``.  In evaluation,
    ``mrr`` is the mean of 1 / rank of the original token among all symbols (RoFormer Figure 7).
    """

    def forward(
        self, model: BaseFairseqModel, sample: Dict[str, Any], reduce: bool = True
    ) -> Tuple[Tensor, Tensor, Dict[str, Any]]:
        """Compute the loss, and compare the predictions with the original tokens.

        ``target`` (B, T) in *sample* is padding except at tokens to predict.
        """
        recorded = Recorded(model)
        loss, sample_size, logging_output = super().forward(recorded, sample, reduce)
        logits = recorded.output[0].detach().flatten(0, -2)  # (B, T, V) or (N, V) -> (N, V)
        best = logits.argmax(dim=-1)
        targets = sample["target"].flatten()
        asked = targets.ne(self.padding_idx)
        # if no token of a batch is selected, fairseq predicts all tokens
        expected = targets if best.numel() == targets.numel() else targets[asked]
        counted = expected.ne(self.padding_idx)
        logging_output["ncorrect"] = (best.eq(expected) & counted).sum()
        if not model.training:
            ranks = reciprocal_ranks(logits, expected)
            logging_output["reciprocal_ranks"] = ranks[counted].sum()
        return loss, sample_size, logging_output

    @staticmethod
    def reduce_metrics(logging_outputs: List[Dict[str, Any]]) -> None:
        """Log the loss, the accuracy and in evaluation the mean reciprocal rank."""
        MaskedLmLoss.reduce_metrics(logging_outputs)
        sums = Sums(logging_outputs)
        asked = sums["sample_size"]
        sums.log_percentage("accuracy", "ncorrect", asked)
        if "reciprocal_ranks" in sums:
            metrics.log_scalar("mrr", sums["reciprocal_ranks"] / asked, asked, round=4)


def reciprocal_ranks(logits: Tensor, targets: Tensor) -> Tensor:
    """1 / rank, (N,), float64, of *targets* (N,) among all symbols, ranked by *logits* (N, V).

    Symbols with equal logits all have the best of their ranks.
    """
    right = logits.gather(1, targets.unsqueeze(1))
    return (logits.gt(right).sum(dim=1) + 1).double().reciprocal()
