"""Loss for ``--task masked_lm_pairs``: masked tokens, boundaries of spans, and pairs of texts.

BERT, Devlin et al., arXiv 1810.04805, section 3.1; ALBERT, Lan et al., arXiv 1909.11942, section
3.1; SpanBERT, Joshi et al. 2020, arXiv 1907.10529, section 3.2.
"""

import math
from typing import Any, Dict, List, Tuple

import torch.nn.functional as F
from fairseq import utils
from fairseq.criterions import register_criterion
from fairseq.criterions.masked_lm import MaskedLmConfig
from fairseq.logging import metrics
from fairseq.models import BaseFairseqModel
from fairseq.tasks import FairseqTask
from torch import Tensor

from fairseq_posenc.training.criterions.masked_lm import MaskedLMAccuracyCriterion, Recorded

RELATIONS = ("nsp", "sop")


@register_criterion("masked_lm_pairs", dataclass=MaskedLmConfig)
class MaskedLMPairsCriterion(MaskedLMAccuracyCriterion):
    """The mean loss of the masked tokens, plus those of their span boundaries and of pairs.

    The second is added with ``--span-boundary-objective``, the third if the samples are pairs.  The
    log has ``loss``, the sum; ``mlm_loss`` and ``accuracy`` of the masked tokens; ``sbo_loss`` of
    the boundaries; and ``nsp_loss`` and ``nsp_accuracy``, or ``sop_loss`` and ``sop_accuracy``, of
    the pairs.  All losses are in bits, accuracies in percent; ``ppl`` is of the masked tokens.

    Args:
        cfg: fairseq's configuration of ``masked_lm``.
        task: the task.
    """

    def __init__(self, cfg: MaskedLmConfig, task: FairseqTask) -> None:
        super().__init__(cfg, task)
        self.relation = getattr(task, "relation", None)
        self.span_boundary = getattr(task, "span_boundary", False)

    def forward(
        self, model: BaseFairseqModel, sample: Dict[str, Any], reduce: bool = True
    ) -> Tuple[Tensor, Tensor, Dict[str, Any]]:
        """Compute the losses.

        Args:
            model: a masked language model, with heads for the losses that are added.
            sample: a batch of B samples; with ``relation`` (B,), 0 for pairs as in the text and 1
                for others.
            reduce: unused, as fairseq passes it.

        Returns:
            the summed losses of the masked tokens plus as many times the mean loss of the pairs,
            the number of masked tokens, and the logging output.
        """
        inputs: Dict[str, object] = {}
        if self.relation is not None:
            inputs["relation"] = True
        if self.span_boundary:
            inputs["spans"] = sample["target"].ne(self.padding_idx)
        recorded = Recorded(model, **inputs)
        total, size, output = super().forward(recorded, sample, reduce)
        output["mlm_loss"] = output["loss"]
        if self.span_boundary:
            targets = sample["target"][inputs["spans"]]
            logits = recorded.output[1]["span_boundary"].float()
            spans = F.cross_entropy(logits, targets, reduction="sum")
            total = total + spans
            output["sbo_loss"] = spans.detach()
        if self.relation is not None:
            logits, targets = recorded.output[1]["relation"], sample["relation"]
            pairs = F.cross_entropy(logits.float(), targets, reduction="sum")
            total = total + size * (pairs / len(targets))
            output[f"{self.relation}_loss"] = pairs.detach()
            output[f"{self.relation}_ncorrect"] = logits.argmax(dim=-1).eq(targets).sum()
        output["loss"] = total.detach()
        return total, size, output

    @staticmethod
    def reduce_metrics(logging_outputs: List[Dict[str, Any]]) -> None:
        """Log the losses and accuracies of one or more batches.

        Args:
            logging_outputs: logging outputs of the batches or workers.
        """
        metrics.log_derived(  # before fairseq logs that of the sum
            "ppl", lambda meters: utils.get_perplexity(meters["mlm_loss"].avg)
        )
        MaskedLMAccuracyCriterion.reduce_metrics(logging_outputs)

        def total(name: str) -> Any:
            return sum(log.get(name, 0) for log in logging_outputs)

        tokens, pairs = total("sample_size"), total("nsentences")
        for name in ("mlm_loss", "sbo_loss"):
            if any(name in log for log in logging_outputs):
                metrics.log_scalar(name, total(name) / tokens / math.log(2), tokens, round=3)
        for name in RELATIONS:
            if any(f"{name}_loss" in log for log in logging_outputs):
                mean = total(f"{name}_loss") / pairs / math.log(2)
                metrics.log_scalar(f"{name}_loss", mean, pairs, round=3)
                right = 100.0 * total(f"{name}_ncorrect") / pairs
                metrics.log_scalar(f"{name}_accuracy", right, pairs, round=2)
