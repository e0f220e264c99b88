"""Loss of replaced-token detection, for ``--arch posenc_electra`` and fairseq's ``masked_lm`` task.

ELECTRA, Clark et al. 2020, arXiv 2003.10555.
"""

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Dict, List, Tuple

import torch
import torch.nn.functional as F
from fairseq.criterions import register_criterion
from fairseq.dataclass import FairseqDataclass
from fairseq.models import BaseFairseqModel
from fairseq.tasks import FairseqTask
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.flags.settings import check_settings
from fairseq_posenc.packs.pretraining.electra import CRITERION
from fairseq_posenc.training.criterions.logs import SummingCriterion, Sums


@dataclass
class ReplacedTokenDetectionConfig(FairseqDataclass):
    """The weight of the discriminator."""

    discriminator_weight: float = field(
        default=50.0,
        metadata={"help": "weight of the discriminator's loss, per token", "at_least": 0},
    )


@register_criterion(CRITERION, dataclass=ReplacedTokenDetectionConfig)
class ReplacedTokenDetectionCriterion(SummingCriterion):
    """Masked-LM loss of the generator plus lambda times the discriminator's (ELECTRA section 2).

    The first is a mean over the masked tokens, the second over all tokens of the text.  Tokens that
    the generator happens to guess right count as original.  Logged are both losses in bits, and of
    the discriminator's decisions the ``accuracy`` over all tokens and the ``recall`` among replaced
    ones, in percent.

    Raises:
        UsageError: the weight is negative or not finite.
    """

    def __init__(self, cfg: ReplacedTokenDetectionConfig, task: FairseqTask) -> None:
        super().__init__(task)
        check_settings(cfg, dataclasses.fields(ReplacedTokenDetectionConfig))
        self.weight = cfg.discriminator_weight

    def forward(
        self, model: BaseFairseqModel, sample: Dict[str, Any], reduce: bool = True
    ) -> Tuple[Tensor, Tensor, Dict[str, Any]]:
        """Compute the loss of a batch.

        Args:
            model: an :class:`~fairseq_posenc.packs.pretraining.electra.ElectraModel`.
            sample: a batch of B sequences; ``target`` (B, T) is padding except at masked tokens.

        Returns:
            the loss summed over masked tokens, their number, and the logging output.

        Raises:
            UsageError: the model has no discriminator.
        """
        target, given = sample["target"], sample["net_input"]["src_tokens"]
        masked = target.ne(self.padding_idx)
        logits, extra = model(**sample["net_input"], masked_tokens=masked)
        if "replaced" not in (extra or {}):
            raise UsageError(
                f"--criterion {CRITERION}: needs a model with a generator, for example --arch "
                "roformer_electra_base"
            )
        generator = F.cross_entropy(logits.float(), target[masked], reduction="sum")
        replaced = extra["tokens"].ne(torch.where(masked, target, given))
        text, scores = given.ne(self.padding_idx), extra["replaced"].float()
        entropy = F.binary_cross_entropy_with_logits(scores, replaced.float(), reduction="none")
        discriminator = (entropy * text).sum()
        size, tokens = masked.sum(), text.sum()
        loss = generator + self.weight * discriminator * size / tokens
        decided = scores.gt(0)
        log = {
            "loss": loss.detach(),
            "generator_loss": generator.detach(),
            "discriminator_loss": discriminator.detach(),
            "right": (decided.eq(replaced) & text).sum(),
            "replaced": replaced.sum(),
            "found": (decided & replaced).sum(),
            "ntokens": sample["ntokens"],
            "nsentences": sample["nsentences"],
            "text": tokens,
            "sample_size": size,
        }
        return loss, size, log

    @staticmethod
    def reduce_metrics(logging_outputs: List[Dict[str, Any]]) -> None:
        """Log losses and accuracies of one or more batches."""
        sums = Sums(logging_outputs)
        size, text = max(sums["sample_size"], 1), max(sums["text"], 1)
        sums.log_bits("loss", size)
        sums.log_bits("generator_loss", size)
        sums.log_bits("discriminator_loss", text, digits=4)
        sums.log_percentage("accuracy", "right", text)
        sums.log_percentage("recall", "found", max(sums["replaced"], 1))
