"""Losses and accuracies of masked tokens, boundaries of spans, and pairs of texts.

BERT, Devlin et al., arXiv 1810.04805, section 3.1; ALBERT, Lan et al., arXiv 1909.11942, section
3.1; SpanBERT, Joshi et al. 2020, arXiv 1907.10529, section 3.2.
"""

from typing import Any, Dict, List, Tuple

from fairseq import utils
from fairseq.criterions import register_criterion
from fairseq.criterions.masked_lm import MaskedLmConfig
from fairseq.logging import metrics
from fairseq.models import BaseFairseqModel
from fairseq.tasks import FairseqTask
from torch import Tensor

from fairseq_posenc.layers.state_heads import HEADS
from fairseq_posenc.packs.pretraining.heads import OBJECTIVES
from fairseq_posenc.training.criterions.logs import Sums
from fairseq_posenc.training.criterions.masked_lm import MaskedLMAccuracyCriterion, Recorded


@register_criterion("masked_lm_pairs", dataclass=MaskedLmConfig)
class MaskedLMPairsCriterion(MaskedLMAccuracyCriterion):
    """The mean loss of the masked tokens, plus the losses of span boundaries and of pairs.

    The second is added with ``--span-boundary-objective``, the third if the samples are pairs.  The
    log has ``loss``, the sum; ``mlm_loss`` and ``accuracy`` of the masked tokens; ``sbo_loss`` of
    the boundaries; and ``nsp_loss`` and ``nsp_accuracy``, or ``sop_loss`` and ``sop_accuracy``, of
    the pairs.  All losses are in bits, accuracies in percent; ``ppl`` is of the masked tokens.
    """

    def __init__(self, cfg: MaskedLmConfig, task: FairseqTask) -> None:
        super().__init__(cfg, task)
        self.heads = {name: HEADS.find(name).thing() for name in getattr(task, "heads", ())}

    def forward(
        self, model: BaseFairseqModel, sample: Dict[str, Any], reduce: bool = True
    ) -> Tuple[Tensor, Tensor, Dict[str, Any]]:
        """Compute the losses.

        Args:
            model: a masked language model, with heads for the losses that are added.
            sample: a batch of B samples; with ``relation`` (B,), 0 for pairs as in the text and 1
                for others.

        Returns:
            the summed losses of the masked tokens plus the mean loss of the pairs times the number
            of masked tokens; this number; and the logging output.
        """
        masked = sample["target"].ne(self.padding_idx)
        asked = {name: head.inputs(sample, masked) for name, head in self.heads.items()}
        recorded = Recorded(model, **({"heads": asked} if asked else {}))
        total, size, output = super().forward(recorded, sample, reduce)
        output["mlm_loss"] = output["loss"]
        for name, head in self.heads.items():
            loss, entries = head.loss(recorded.output[1][name], sample, masked)
            total = total + loss
            output.update(entries)
        output["loss"] = total.detach()
        return total, size, output

    @staticmethod
    def reduce_metrics(logging_outputs: List[Dict[str, Any]]) -> None:
        """Log the losses and accuracies of one or more batches."""
        metrics.log_derived(  # before fairseq logs that of the sum
            "ppl", lambda meters: utils.get_perplexity(meters["mlm_loss"].avg)
        )
        MaskedLMAccuracyCriterion.reduce_metrics(logging_outputs)
        sums = Sums(logging_outputs)
        if "mlm_loss" in sums:
            sums.log_bits("mlm_loss", sums["sample_size"])
        for head in OBJECTIVES:
            if f"{head.name}_loss" in sums:
                head.log(sums)
