"""Loss and accuracy for fairseq's ``masked_lm`` task."""

from typing import Any, Dict, List, Tuple

from fairseq.criterions import register_criterion
from fairseq.criterions.masked_lm import MaskedLmConfig, MaskedLmLoss
from fairseq.logging import metrics
from fairseq.models import BaseFairseqModel
from torch import Tensor


@register_criterion("masked_lm_accuracy", dataclass=MaskedLmConfig)
class MaskedLMAccuracyCriterion(MaskedLmLoss):
    """fairseq's ``masked_lm``, with the accuracy that papers report: of the tokens to predict.

    The loss is fairseq's own. ``accuracy`` is the share, in percent, of the chosen tokens (masked,
    replaced or left as they were) whose most probable symbol is the original one, so
    ``--best-checkpoint-metric accuracy --maximize-best-checkpoint-metric`` works.
    """

    def forward(
        self, model: BaseFairseqModel, sample: Dict[str, Any], reduce: bool = True
    ) -> Tuple[Tensor, Tensor, Dict[str, Any]]:
        """Compute the loss, and count the tokens that are predicted right.

        Args:
            model: a masked language model.
            sample: a batch of B sequences; ``target`` (B, T) is padding where nothing is asked.
            reduce: not used; there for fairseq.

        Returns:
            the summed loss, the number of tokens to predict, and what is logged.
        """
        outputs: List[Tensor] = []
        hook = model.register_forward_hook(lambda _, __, output: outputs.append(output[0].detach()))
        try:
            loss, sample_size, logging_output = super().forward(model, sample, reduce)
        finally:
            hook.remove()
        best = outputs[0].argmax(dim=-1).flatten()
        targets = sample["target"].flatten()
        asked = targets.ne(self.padding_idx)
        # where nothing is to be predicted, fairseq predicts every token
        expected = targets if best.numel() == targets.numel() else targets[asked]
        right = best.eq(expected) & expected.ne(self.padding_idx)
        logging_output["ncorrect"] = right.sum()
        return loss, sample_size, logging_output

    @staticmethod
    def reduce_metrics(logging_outputs: List[Dict[str, Any]]) -> None:
        """Log the loss and the accuracy of one or more batches.

        Args:
            logging_outputs: of the batches, or of the workers.
        """
        MaskedLmLoss.reduce_metrics(logging_outputs)
        asked = sum(log.get("sample_size", 0) for log in logging_outputs)
        right = sum(log.get("ncorrect", 0) for log in logging_outputs)
        metrics.log_scalar("accuracy", 100.0 * right / asked, asked, round=2)
