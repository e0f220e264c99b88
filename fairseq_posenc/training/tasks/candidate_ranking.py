"""Choosing among candidates for a gap by a masked language model: WNLI as RoBERTa does it.

RoBERTa section 5.1, with the loss of Kocijan et al., arXiv 1905.06290: a pronoun is replaced by
each noun phrase that it may refer to.
"""

import logging
import os
from dataclasses import dataclass, field
from typing import List

from fairseq.data import Dictionary, data_utils
from fairseq.dataclass import FairseqDataclass
from fairseq.tasks import FairseqTask, register_task
from omegaconf import II, MISSING

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.training.tasks.candidates import CandidateDataset

logger = logging.getLogger(__name__)

TASK = "candidate_ranking"


@dataclass
class CandidateRankingConfig(FairseqDataclass):
    """Flags of ``--task candidate_ranking``."""

    data: str = field(default=MISSING, metadata={"help": "path to data directory"})
    max_positions: int = field(default=512, metadata={"help": "max tokens of a text"})
    seed: int = II("common.seed")


@register_task(TASK, dataclass=CandidateRankingConfig)
class CandidateRankingTask(FairseqTask):
    """Ranking candidates for a gap; for ``--criterion candidate_ranking``.

    In the data folder, ``input0`` has the texts before the gap, ``input1`` those after it,
    ``input2`` the right candidates, and ``input3`` and on the others, with empty lines where an
    example has fewer.

    Args:
        cfg: the flags.
        dictionary: of the model.
    """

    def __init__(self, cfg: CandidateRankingConfig, dictionary: Dictionary) -> None:
        super().__init__(cfg)
        self.dictionary = dictionary

    @classmethod
    def setup_task(cls, cfg: CandidateRankingConfig, **kwargs: object) -> "CandidateRankingTask":
        """Load the dictionary, and set up the task."""
        path = os.path.join(cfg.data, "input0", "dict.txt")
        if not os.path.isfile(path):
            raise UsageError(f"{cfg.data}: has no input0/dict.txt; give a folder of candidates")
        dictionary = Dictionary.load(path)
        dictionary.add_symbol("<mask>")
        logger.info("dictionary: %d types", len(dictionary))
        return cls(cfg, dictionary)

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
                f"{self.cfg.data}: {split} has no two candidates for every text; prepare it again"
            )
        left, right, *candidates = parts
        self.datasets[split] = CandidateDataset(
            left, right, candidates, self.dictionary, self.cfg.seed, f"{self.cfg.data}: {split}"
        )
        logger.info("%s: %d examples", split, len(self.datasets[split]))
        return self.datasets[split]

    def max_positions(self) -> int:
        """Most tokens of a text."""
        return int(self.cfg.max_positions)

    @property
    def source_dictionary(self) -> Dictionary:
        """The dictionary of the model."""
        return self.dictionary

    @property
    def target_dictionary(self) -> Dictionary:
        """The dictionary of the model."""
        return self.dictionary
