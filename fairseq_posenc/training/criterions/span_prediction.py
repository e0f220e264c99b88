"""Loss for ``--task span_prediction``."""

import math
from typing import Any, Dict, List, Optional, Tuple

from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics
from fairseq.models import BaseFairseqModel
from fairseq.tasks import FairseqTask
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.training.reading.spans import span_loss


@register_criterion("span_prediction", dataclass=FairseqDataclass)
class SpanPredictionCriterion(FairseqCriterion):
    """Cross entropy of the first and the last token of the answer.

    See :func:`fairseq_posenc.training.reading.spans.span_loss`.

    Args:
        task: a ``span_prediction`` task.

    Raises:
        UsageError: it is another task.
    """

    def __init__(self, task: FairseqTask) -> None:
        super().__init__(task)
        if not hasattr(task, "candidates"):
            raise UsageError("--criterion span_prediction: needs --task span_prediction")
        self.logits: Optional[Tensor] = None

    def forward(
        self, model: BaseFairseqModel, sample: Dict[str, Any], reduce: bool = True
    ) -> Tuple[Tensor, int, Dict[str, Any]]:
        """Compute the loss; in evaluation, ``logits`` then holds those of the span head.

        Args:
            model: a model with the task's head.
            sample: a batch of B windows.
            reduce: unused, as fairseq passes it.

        Returns:
            the summed loss, B, and the logging output.
        """
        head = self.task.cfg.span_head_name
        logits, _ = model(**sample["net_input"], classification_head_name=head)
        self.logits = None if model.training else logits
        each = span_loss(logits, sample["passage"], sample["target"], self.task.classified)
        loss, size = each.sum(), len(each)
        output = {
            "loss": loss.detach(),
            "ntokens": sample["ntokens"],
            "nsentences": size,
            "sample_size": size,
        }
        return loss, size, output

    @staticmethod
    def reduce_metrics(logging_outputs: List[Dict[str, Any]]) -> None:
        """Log the loss per window, in bits.

        Args:
            logging_outputs: the logging outputs of one or more batches.
        """
        size = sum(log.get("sample_size", 0) for log in logging_outputs)
        loss = sum(log.get("loss", 0) for log in logging_outputs)
        metrics.log_scalar("loss", loss / size / math.log(2), size, round=3)

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        """True: the logging outputs of workers may be summed."""
        return True
