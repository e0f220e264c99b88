"""Loss and accuracy for fairseq's ``masked_lm`` task."""

from typing import Any, Dict, List, Tuple

from fairseq.criterions import register_criterion
from fairseq.criterions.masked_lm import MaskedLmConfig, MaskedLmLoss
from fairseq.logging import metrics
from fairseq.models import BaseFairseqModel
from torch import Tensor


@register_criterion("masked_lm_accuracy", dataclass=MaskedLmConfig)
class MaskedLMAccuracyCriterion(MaskedLmLoss):
    """fairseq's ``masked_lm``, with the accuracy on the tokens to predict, as papers report it.

    The loss is fairseq's.  ``accuracy`` is the percentage of the selected tokens (masked, replaced
    or unchanged) whose most probable prediction is the original token; select checkpoints by it
    with ``--best-checkpoint-metric accuracy --maximize-best-checkpoint-metric``.
    """

    def forward(
        self, model: BaseFairseqModel, sample: Dict[str, Any], reduce: bool = True
    ) -> Tuple[Tensor, Tensor, Dict[str, Any]]:
        """Compute the loss, and count the tokens that are predicted correctly.

        Args:
            model: a masked language model.
            sample: a batch of B sequences; ``target`` (B, T) is padding except at tokens to
                predict.
            reduce: unused, as fairseq passes it.

        Returns:
            the summed loss, the number of tokens to predict, and the logging output.
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
        # if no token of a batch is selected, fairseq predicts all of them
        expected = targets if best.numel() == targets.numel() else targets[asked]
        right = best.eq(expected) & expected.ne(self.padding_idx)
        logging_output["ncorrect"] = right.sum()
        return loss, sample_size, logging_output

    @staticmethod
    def reduce_metrics(logging_outputs: List[Dict[str, Any]]) -> None:
        """Log the loss and the accuracy of one or more batches.

        Args:
            logging_outputs: logging outputs of the batches or workers.
        """
        MaskedLmLoss.reduce_metrics(logging_outputs)
        asked = sum(log.get("sample_size", 0) for log in logging_outputs)
        right = sum(log.get("ncorrect", 0) for log in logging_outputs)
        metrics.log_scalar("accuracy", 100.0 * right / asked, asked, round=2)
