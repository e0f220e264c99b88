"""Loss for ``--task masked_lm_pairs``: masked tokens, and the relation of pairs of texts.

BERT, Devlin et al., arXiv 1810.04805, section 3.1; ALBERT, Lan et al., arXiv 1909.11942, section
3.1.
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

from fairseq_posenc.criterions.masked_lm import MaskedLMAccuracyCriterion

RELATIONS = ("nsp", "sop")


@register_criterion("masked_lm_pairs", dataclass=MaskedLmConfig)
class MaskedLMPairsCriterion(MaskedLMAccuracyCriterion):
    """The mean loss of the masked tokens plus that of the pairs, if the samples are pairs.

    The log has ``loss``, the sum; ``mlm_loss`` and ``accuracy`` of the masked tokens; and
    ``nsp_loss`` and ``nsp_accuracy``, or ``sop_loss`` and ``sop_accuracy``, of the pairs.  All
    losses are in bits, accuracies in percent; ``ppl`` is of the masked tokens.

    Args:
        cfg: fairseq's configuration of ``masked_lm``.
        task: the task.
    """

    def __init__(self, cfg: MaskedLmConfig, task: FairseqTask) -> None:
        super().__init__(cfg, task)
        self.relation = getattr(task, "relation", None)

    def forward(
        self, model: BaseFairseqModel, sample: Dict[str, Any], reduce: bool = True
    ) -> Tuple[Tensor, Tensor, Dict[str, Any]]:
        """Compute both losses.

        Args:
            model: a masked language model, with a head for the relation if there is one.
            sample: a batch of B samples; with ``relation`` (B,), 0 for pairs as in the text and 1
                for others.
            reduce: unused, as fairseq passes it.

        Returns:
            the summed loss of the masked tokens plus as many times the mean loss of the pairs, the
            number of masked tokens, and the logging output.
        """
        if self.relation is None:
            loss, size, output = super().forward(model, sample, reduce)
            return loss, size, {**output, "mlm_loss": output["loss"]}
        found: List[Tensor] = []
        hook = model.register_forward_hook(lambda _, __, out: found.append(out[1]["relation"]))
        inputs = {**sample["net_input"], "relation": True}
        try:
            loss, size, output = super().forward(model, {**sample, "net_input": inputs}, reduce)
        finally:
            hook.remove()
        (logits,), targets = found, sample["relation"]
        pairs = F.cross_entropy(logits.float(), targets, reduction="sum")
        total = loss + size * (pairs / len(targets))
        output["mlm_loss"], output["loss"] = output["loss"], total.detach()
        output[f"{self.relation}_loss"] = pairs.detach()
        output[f"{self.relation}_ncorrect"] = logits.argmax(dim=-1).eq(targets).sum()
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
        metrics.log_scalar("mlm_loss", total("mlm_loss") / tokens / math.log(2), tokens, round=3)
        for name in RELATIONS:
            if any(f"{name}_loss" in log for log in logging_outputs):
                mean = total(f"{name}_loss") / pairs / math.log(2)
                metrics.log_scalar(f"{name}_loss", mean, pairs, round=3)
                right = 100.0 * total(f"{name}_ncorrect") / pairs
                metrics.log_scalar(f"{name}_accuracy", right, pairs, round=2)
