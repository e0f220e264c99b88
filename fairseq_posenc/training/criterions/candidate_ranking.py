"""The margin ranking loss of candidates for a gap, and how often the right one is first."""

import math
from dataclasses import dataclass, field
from typing import Any, Dict, List, Tuple

import torch
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics
from fairseq.models import BaseFairseqModel
from fairseq.tasks import FairseqTask
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError


@dataclass
class CandidateRankingCriterionConfig(FairseqDataclass):
    """Flags of ``--criterion candidate_ranking``."""

    margin: float = field(
        default=0.4,
        metadata={"help": "log-probability by which the right candidate should lead (beta)"},
    )
    margin_weight: float = field(
        default=5.0, metadata={"help": "weight of the margin beside the log-likelihood (alpha)"}
    )


@register_criterion("candidate_ranking", dataclass=CandidateRankingCriterionConfig)
class CandidateRankingCriterion(FairseqCriterion):
    """The loss of Kocijan et al., arXiv 1905.06290, for one right and several other candidates.

    ``-log P(right) + alpha * mean(max(0, log P(other) - log P(right) + beta))``, where log P is the
    mean log-probability of a candidate's tokens, all masked.  ``accuracy`` is the percentage of
    examples whose right candidate has the largest; select checkpoints by it with
    ``--best-checkpoint-metric accuracy --maximize-best-checkpoint-metric``.

    Args:
        cfg: the flags.
        task: a ``candidate_ranking`` task.

    Raises:
        UsageError: the task is another, or a flag is negative.
    """

    def __init__(self, cfg: CandidateRankingCriterionConfig, task: FairseqTask) -> None:
        super().__init__(task)
        for name in ("margin", "margin_weight"):
            value = getattr(cfg, name)
            if not 0 <= value < math.inf:
                raise UsageError(f"--{name.replace('_', '-')} {value}: must be 0 or more")
        self.margin, self.weight = cfg.margin, cfg.margin_weight

    def forward(
        self, model: BaseFairseqModel, sample: Dict[str, Any], reduce: bool = True
    ) -> Tuple[Tensor, int, Dict[str, Any]]:
        """Compute the loss, and count the examples whose right candidate is first.

        Args:
            model: a masked language model.
            sample: a batch of B examples with R rows in all; ``target`` (R, T) is padding except
                at the tokens of the candidates, ``counts`` (B,) says whose they are.
            reduce: unused, as fairseq passes it.

        Returns:
            the summed loss, B, and the logging output.
        """
        scores = self.scores(model, sample)
        right, others = scores[:, :1], scores[:, 1:]
        lead = (others - right + self.margin).clamp(min=0)  # 0 where there is no candidate
        margins = lead.sum(1) / (sample["counts"] - 1).to(lead)
        loss = (self.weight * margins - right.squeeze(1)).sum()
        size = len(scores)
        output = {
            "loss": loss.detach(),
            "ntokens": sample["ntokens"],
            "nsentences": size,
            "sample_size": size,
            "ncorrect": right.gt(others).all(1).sum(),
        }
        return loss, size, output

    def scores(self, model: BaseFairseqModel, sample: Dict[str, Any]) -> Tensor:
        """The scores (B, N) of the candidates of a batch, -inf where an example has fewer than N.

        Args:
            model: as for :meth:`forward`.
            sample: as for :meth:`forward`.
        """
        targets, counts = sample["target"], sample["counts"].tolist()
        asked = targets.ne(self.padding_idx)
        logits = model(**sample["net_input"], masked_tokens=asked)[0]  # (tokens asked for, V)
        found = logits.float().log_softmax(-1).gather(1, targets[asked].unsqueeze(1)).squeeze(1)
        rows = found.new_zeros(len(targets)).index_add(0, asked.nonzero()[:, 0], found)
        means = rows / asked.sum(1)
        return torch.nn.utils.rnn.pad_sequence(
            list(means.split(counts)), batch_first=True, padding_value=-math.inf
        )

    @staticmethod
    def reduce_metrics(logging_outputs: List[Dict[str, Any]]) -> None:
        """Log the loss and the accuracy of one or more batches.

        Args:
            logging_outputs: the logging outputs of the batches or workers.
        """
        total = {
            name: sum(output.get(name, 0) for output in logging_outputs)
            for name in ("loss", "sample_size", "ncorrect")
        }
        size = total["sample_size"]
        metrics.log_scalar("loss", total["loss"] / size / math.log(2), size, round=3)
        metrics.log_scalar("accuracy", 100.0 * total["ncorrect"] / size, size, round=2)

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        """True: all entries are sums."""
        return True
