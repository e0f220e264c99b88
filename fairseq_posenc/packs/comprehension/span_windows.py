"""Splits long passages into windows, each of which is an example for fairseq.

BERT, Devlin et al., arXiv 1810.04805.
"""

from typing import Any, Dict, List, NamedTuple, Sequence

import numpy as np
import torch
from fairseq.data import Dictionary, data_utils
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.flags.options import Options
from fairseq_posenc.packs.comprehension.data import Split
from fairseq_posenc.training.base import SizedDataset


class Window(NamedTuple):
    """A part of a passage, as indices of tokens; ends are exclusive."""

    start: int  # the first token
    end: int  # the token after the last one
    own_start: int  # the first token that the window owns; see :func:`windows`
    own_end: int  # the token after the last one that the window owns


def windows(length: int, room: int, stride: int) -> List[Window]:
    """Windows of at most *room* tokens that cover a passage of *length* tokens.

    Neighbouring windows begin *stride* tokens apart; *stride* is at most *room*.  The context of a
    token in a window is the number of tokens before it or after it, whichever is smaller.  The
    window that gives a token the most context owns the token; of two equal windows, the earlier.

    >>> windows(7, 4, 2)
    [Window(start=0, end=4, own_start=0, own_end=3), Window(start=2, end=6, own_start=3, \
own_end=5), Window(start=4, end=7, own_start=5, own_end=7)]
    """
    starts = range(0, max(length - room, 0) + stride, stride)
    ends = [min(start + room, length) for start in starts]
    owners = []
    for token in range(length):
        seeing = [n for n, s in enumerate(starts) if s <= token < ends[n]]
        owners.append(max(seeing, key=lambda n: min(token - starts[n], ends[n] - 1 - token)))
    parts, at = [], 0
    for number, (start, end) in enumerate(zip(starts, ends)):
        size = owners.count(number)
        parts.append(Window(start, end, at, at + size))
        at += size
    return parts


class SpanWindows(SizedDataset):
    """Windows over the passages of questions: ``[CLS] question </s> part of the passage </s>``.

    In batches, questions are numbered from *first* on.

    Raises:
        UsageError: a question leaves no room for its passage.
    """

    def __init__(
        self, split: Split, dictionary: Dictionary, cfg: Options, first: int, where: str
    ) -> None:
        self.split, self.dictionary, self.cfg, self.first = split, dictionary, cfg, first
        self.cut = 0
        rows: List[Sequence[int]] = []
        sizes: List[int] = []
        for number, record in enumerate(split.questions):
            length = len(split.question_tokens[number])
            if cfg.longest_question is not None and length > cfg.longest_question:
                length, self.cut = cfg.longest_question, self.cut + 1
            fixed = length + 3 + (cfg.separator_token is not None)
            room = cfg.max_positions - fixed
            if room < 1:
                raise UsageError(
                    f"{where}: question {record.id} has {length} tokens, and with its special "
                    "symbols leaves no room for the passage in --max-positions "
                    f"{cfg.max_positions}; give a larger number, or a smaller --longest-question"
                )
            passage = len(split.passages[record.passage].offsets)
            for window in windows(passage, room, min(cfg.stride, room)):
                rows.append([number, *window])
                sizes.append(fixed + window.end - window.start)
        self._rows, self.sizes = np.array(rows, dtype=np.int32), np.array(sizes, dtype=np.int64)
        self._order = np.arange(len(rows))
        if not cfg.no_shuffle:
            with data_utils.numpy_seed(cfg.seed):
                self._order = np.random.permutation(len(rows))

    def __getitem__(self, index: int) -> Dict[str, Any]:
        number, start, end, own_start, own_end = self._rows[index].tolist()
        record, cfg = self.split.questions[number], self.cfg
        question = self.split.question_tokens[number].long()[: cfg.longest_question]
        separator = [] if cfg.separator_token is None else [cfg.separator_token]
        eos = self.dictionary.eos()
        head = [cfg.init_token, *question.tolist(), eos, *separator]
        part = self.split.passage_tokens[record.passage][start:end].long()
        shift = len(head) - start  # from an index in the passage to a position in the window
        within = start <= record.start and record.end < end
        target = [record.start + shift, record.end + shift] if within else [0, 0]
        return {
            "id": index,
            "tokens": torch.cat([torch.tensor(head), part, torch.tensor([eos])]),
            "question": self.first + number,
            "passage": [len(head), len(head) + end - start],
            "own": [own_start + shift, own_end + shift],
            "shift": shift,
            "target": target if record.start >= 0 else [0, 0],
        }

    def collater(self, samples: List[Dict[str, Any]]) -> Dict[str, Any]:
        """A batch of B windows of at most T tokens.

        Returns:
            ``net_input`` with ``src_tokens`` (B, T) and ``src_lengths`` (B,), and for each window:
            ``question`` (B,), the index of its question; ``passage`` and ``own`` (B, 2), ranges of
            positions; ``shift`` (B,), position minus index in the passage; and ``target`` (B, 2),
            the positions of the first and last token of the answer, or 0.
        """
        if not samples:
            return {}

        def column(name: str) -> Tensor:
            return torch.tensor([sample[name] for sample in samples], dtype=torch.long)

        tokens = [sample["tokens"] for sample in samples]
        lengths = torch.tensor([len(text) for text in tokens])
        padded = data_utils.collate_tokens(tokens, self.dictionary.pad())
        return {
            "id": column("id"),
            "net_input": {"src_tokens": padded, "src_lengths": lengths},
            "nsentences": len(samples),
            "ntokens": int(lengths.sum()),
            **{n: column(n) for n in ("question", "passage", "own", "shift", "target")},
        }

    def ordered_indices(self) -> np.ndarray:
        """The order of the windows, random unless ``--no-shuffle`` is given."""
        return self._order
