"""Lets a masked language model choose among candidates for a gap, as RoBERTa does for WNLI.

RoBERTa section 5.1, with the loss of Kocijan et al., arXiv 1905.06290: the gap stands for a
pronoun, and the candidates are the noun phrases to which the pronoun may refer.
"""

import dataclasses
import logging
import math
import os
from dataclasses import dataclass, field
from typing import Any, Dict, List, Sequence, Tuple

import numpy as np
import torch
from fairseq.criterions import register_criterion
from fairseq.data import Dictionary, data_utils
from fairseq.dataclass import FairseqDataclass
from fairseq.models import BaseFairseqModel
from fairseq.tasks import FairseqTask, register_task
from fairseq.tasks.masked_lm import MaskedLMTask
from omegaconf import II, MISSING
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.checkpoints.loader import read_dictionary
from fairseq_posenc.flags.settings import check_settings
from fairseq_posenc.training.base import SizedDataset, SummingCriterion, Sums

logger = logging.getLogger(__name__)

TASK = "candidate_ranking"


class CandidateDataset(SizedDataset):
    """Each example has one row per candidate, the correct one first; the candidate is masked.

    Args:
        left: the text before the gap of each example, with a final </s>, which is dropped.
        right: the text after the gap of each example, with a final </s>.
        candidates: the first candidates of all examples, the second candidates, and so on; each
            candidate ends with </s>, and </s> alone means that the example has no such candidate.

    Raises:
        UsageError: an example has fewer than two candidates.
    """

    def __init__(
        self,
        left: Sequence[Tensor],
        right: Sequence[Tensor],
        candidates: Sequence[Sequence[Tensor]],
        dictionary: Dictionary,
        seed: int,
        where: str,
    ) -> None:
        self._pad = dictionary.pad()
        mask = dictionary.index("<mask>")
        self.rows: List[Dict[str, List[Tensor]]] = []
        for number, (before, after) in enumerate(zip(left, right)):
            start = torch.cat([before.new_tensor([dictionary.bos()]), before[:-1]])
            choices = [tokens[:-1] for tokens in (part[number] for part in candidates)]
            if len(choices[0]) == 0 or sum(len(tokens) > 0 for tokens in choices) < 2:
                raise UsageError(
                    f"{where}: example {number + 1} has fewer than two candidates; give the "
                    "correct one and at least one other"
                )
            row: Dict[str, List[Tensor]] = {"source": [], "target": []}
            for tokens in filter(len, choices):
                gap = torch.full_like(tokens, mask)
                row["source"].append(torch.cat([start, gap, after]))
                rest = [torch.full_like(part, self._pad) for part in (start, after)]
                row["target"].append(torch.cat([rest[0], tokens, rest[1]]))
            self.rows.append(row)
        self.sizes = np.array([max(map(len, row["source"])) for row in self.rows])
        with data_utils.numpy_seed(seed):
            self._order = np.random.permutation(len(self.rows))

    def __getitem__(self, index: int) -> Dict[str, Any]:
        return {"id": index, **self.rows[index]}

    def num_tokens(self, index: int) -> int:
        """Number of tokens in all rows of an example, padding included."""
        return int(self.sizes[index]) * len(self.rows[index]["source"])

    def ordered_indices(self) -> np.ndarray:
        """The indices of the examples in random order."""
        return self._order

    def collater(self, samples: List[Dict[str, Any]]) -> Dict[str, Any]:
        """A batch of B examples: tokens and targets (R, T) of all rows, rows per example (B,)."""
        if not samples:
            return {}
        rows = {
            name: data_utils.collate_tokens(
                [row for sample in samples for row in sample[name]], self._pad
            )
            for name in ("source", "target")
        }
        return {
            "id": torch.tensor([sample["id"] for sample in samples]),
            "nsentences": len(samples),
            "ntokens": int(rows["source"].ne(self._pad).sum()),
            "net_input": {"src_tokens": rows["source"]},
            "target": rows["target"],
            "counts": torch.tensor([len(sample["source"]) for sample in samples]),
        }


@dataclass
class CandidateRankingConfig(FairseqDataclass):
    """Flags of ``--task candidate_ranking``."""

    data: str = field(default=MISSING, metadata={"help": "path to data directory"})
    max_positions: int = field(default=512, metadata={"help": "maximum number of tokens in a text"})
    seed: int = II("common.seed")


@register_task(TASK, dataclass=CandidateRankingConfig)
class CandidateRankingTask(MaskedLMTask):
    """Ranks candidates for a gap; used with ``--criterion candidate_ranking``.

    In the data folder, ``input0`` has the texts before the gap, ``input1`` the texts after it, and
    ``input2`` the correct candidates.  Each of ``input3``, ``input4`` and so on has one other
    candidate per example, or an empty line where an example has fewer candidates.
    """

    @classmethod
    def setup_task(cls, cfg: CandidateRankingConfig, **kwargs: object) -> "CandidateRankingTask":
        """Load the dictionary, and set up the task."""
        path = os.path.join(cfg.data, "input0", "dict.txt")
        if not os.path.isfile(path):
            raise UsageError(
                f"{cfg.data}: has no input0/dict.txt; give a data folder with input0 to input3"
            )
        return cls(cfg, read_dictionary(path, adds_mask=False))

    def load_dataset(self, split: str, combine: bool = False, **kwargs: object) -> CandidateDataset:
        """Load a split."""
        parts: List[data_utils.FairseqDataset] = []
        while os.path.isdir(os.path.join(self.cfg.data, f"input{len(parts)}")):
            path = os.path.join(self.cfg.data, f"input{len(parts)}", split)
            part = data_utils.load_indexed_dataset(path, self.dictionary)
            if part is None:
                raise FileNotFoundError(f"Dataset not found: {split} ({path})")
            parts.append(part)
        if len(parts) < 4 or len(set(map(len, parts))) > 1:
            raise UsageError(
                f"{self.cfg.data}: {split} needs the folders input0 to input3 at least, all with "
                "the same number of lines; prepare the data again"
            )
        left, right, *candidates = parts
        self.datasets[split] = CandidateDataset(
            left, right, candidates, self.dictionary, self.cfg.seed, f"{self.cfg.data}: {split}"
        )
        logger.info("%s: %d examples", split, len(self.datasets[split]))
        return self.datasets[split]

    def max_positions(self) -> int:
        """Maximum number of tokens in a text."""
        return int(self.cfg.max_positions)


@dataclass
class CandidateRankingCriterionConfig(FairseqDataclass):
    """Flags of ``--criterion candidate_ranking``."""

    margin: float = field(
        default=0.4,
        metadata={
            "help": "beta: how far the correct candidate should lead in log-probability",
            "at_least": 0,
        },
    )
    margin_weight: float = field(
        default=5.0,
        metadata={"help": "alpha: weight of the margin loss in the sum of losses", "at_least": 0},
    )


@register_criterion(TASK, dataclass=CandidateRankingCriterionConfig)
class CandidateRankingCriterion(SummingCriterion):
    """The loss of Kocijan et al., arXiv 1905.06290, for the correct and other candidates.

    ``-log P(correct) + alpha * mean(max(0, log P(other) - log P(correct) + beta))``, where log P is
    the mean log-probability of a candidate's tokens, all masked.  ``accuracy`` is the percentage of
    examples whose correct candidate has the largest log P.  To select checkpoints by accuracy, give
    ``--best-checkpoint-metric accuracy --maximize-best-checkpoint-metric``.

    Raises:
        UsageError: a flag is negative.
    """

    def __init__(self, cfg: CandidateRankingCriterionConfig, task: FairseqTask) -> None:
        super().__init__(task)
        check_settings(cfg, dataclasses.fields(CandidateRankingCriterionConfig))
        self.margin, self.weight = cfg.margin, cfg.margin_weight

    def forward(
        self, model: BaseFairseqModel, sample: Dict[str, Any], reduce: bool = True
    ) -> Tuple[Tensor, int, Dict[str, Any]]:
        """Compute the loss, and count the examples whose correct candidate ranks first.

        *sample* has B examples with R rows in all; ``target`` (R, T) is padding except at the
        tokens of the candidates, and ``counts`` (B,) is the number of rows of each example.
        """
        scores = self.scores(model, sample)
        right, others = scores[:, :1], scores[:, 1:]
        lead = (others - right + self.margin).clamp(min=0)  # 0 where there is no candidate
        margins = lead.sum(1) / (sample["counts"] - 1).to(lead)
        each, correct = self.weight * margins - right.squeeze(1), right.gt(others).all(1)
        return self.output_of(sample, each, ncorrect=correct.sum())

    def scores(self, model: BaseFairseqModel, sample: Dict[str, Any]) -> Tensor:
        """Scores (B, N) of up to N candidates per example, -inf where an example has fewer."""
        targets, counts = sample["target"], sample["counts"].tolist()
        asked = targets.ne(self.padding_idx)
        logits = model(**sample["net_input"], masked_tokens=asked)[0]  # (masked tokens, V)
        each = logits.float().log_softmax(-1).gather(1, targets[asked].unsqueeze(1)).squeeze(1)
        rows = each.new_zeros(len(targets)).index_add(0, asked.nonzero()[:, 0], each)
        means = rows / asked.sum(1)
        return torch.nn.utils.rnn.pad_sequence(
            list(means.split(counts)), batch_first=True, padding_value=-math.inf
        )

    @staticmethod
    def reduce_metrics(logging_outputs: List[Dict[str, Any]]) -> None:
        """Log the loss and the accuracy of one or more batches."""
        SummingCriterion.reduce_metrics(logging_outputs)
        sums = Sums(logging_outputs)
        sums.log_percentage("accuracy", "ncorrect", sums["sample_size"])
