"""Makes pairs of texts; in about half of them, the second text follows the first in a document.

Next sentence prediction: BERT, Devlin et al., arXiv 1810.04805, section 3.1, in the two formats of
RoBERTa, Liu et al., arXiv 1907.11692, section 4.2.  Sentence order prediction: ALBERT, Lan et al.,
arXiv 1909.11942, section 3.1.
"""

import logging
from typing import Collection, Tuple

import numpy as np
import torch
from fairseq.data import Dictionary, FairseqDataset, TokenBlockDataset
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.flags.options import Options
from fairseq_posenc.training.base import SizedDataset

logger = logging.getLogger(__name__)

NEXT, ORDER = "nsp", "sop"
SEGMENT, SENTENCE = "segment", "sentence"
_DRAWS = 20  # attempts to draw a line that fits


class Documents:
    """The lines of a text that are not blank, and the documents that blank lines separate.

    >>> text = Documents([3, 1, 1, 2, 5, 1])
    >>> text.numbers.tolist(), text.bounds.tolist(), text.before.tolist()
    ([0, 3, 4], [0, 1, 3], [0, 2, 3, 7])

    Args:
        sizes: number of tokens of every line, ``</s>`` included, so 1 for a blank line.

    Attributes:
        numbers: (L,) index of each line in the text, blank lines included.
        document: (L,) index of the document of each line.
        bounds: (D + 1,) first line of each document, and L.
        before: (L + 1,) number of tokens before each line, without ``</s>``.
    """

    def __init__(self, sizes: Collection[int]) -> None:
        self.lengths = np.asarray(sizes, dtype=np.int64) - 1
        self.numbers = np.flatnonzero(self.lengths > 0)
        begins = np.diff(self.numbers, prepend=-2) > 1
        self.document = np.cumsum(begins) - 1
        self.bounds = np.append(np.flatnonzero(begins), len(self.numbers))
        self.before = np.append(0, np.cumsum(self.lengths[self.numbers]))

    def tokens(self, first: np.ndarray, last: np.ndarray) -> np.ndarray:
        """Number of tokens from lines *first* up to lines *last*, exclusive."""
        return self.before[last] - self.before[first]

    def draw_elsewhere(
        self, draw: np.random.Generator, begin: np.ndarray, end: np.ndarray
    ) -> np.ndarray:
        """Draw random lines (N,), each before its *begin* (N,), or at or after its *end* (N,)."""
        first = draw.integers(0, len(self.numbers) - (end - begin))
        return first + np.where(first >= begin, end - begin, 0)

    def nearest(self, first: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        """The lines (N,) that start nearest to *tokens* (N,) tokens after the start of *first*."""
        wanted = self.before[first] + tokens
        above = np.searchsorted(self.before, wanted).clip(max=len(self.numbers))
        below = above - 1
        return np.where(wanted - self.before[below] < self.before[above] - wanted, below, above)

    def blocks(self, unit: str, longest: int) -> Tuple[np.ndarray, np.ndarray]:
        """The blocks of two or more consecutive lines of a document that become pairs.

        With *unit* ``segment``, a block is as many whole lines as fit into *longest* tokens; with
        ``sentence``, any two neighbours.  Returns the first line of each block, and the line after
        its last one.
        """
        if unit == SENTENCE:
            first = np.flatnonzero(self.document[:-1] == self.document[1:])
            return first, first + 2
        if not (np.diff(self.bounds) > 1).any():
            return self.bounds[:0], self.bounds[:0]
        cut = TokenBlockDataset(
            self.lengths,
            self.lengths,
            longest,
            pad=0,
            eos=0,
            break_mode="complete_doc",
            document_sep_len=0,
        )
        first, last = np.searchsorted(self.before, np.asarray(cut.slice_indices)).T
        several = last - first > 1
        return first[several], last[several]


class TextPairs(SizedDataset):
    """Pairs ``[CLS] a </s> b </s>``, half of which are not as in the text.

    Each block of lines gives one pair per epoch: it is divided after a random line.  With ``nsp``,
    half of the pairs then get lines of another document as their second text; with ``sop``, the
    texts of half of the pairs are swapped.  All random choices are made anew for every epoch and
    depend only on the seed and the epoch.  If a pair is too long, a text that exceeds half
    of the room is cut, the first text at its beginning and the second at its end.

    Attributes:
        sizes: (N,) tokens of each pair.
        relations: (N,) 0 for a pair as in the text, 1 for any other.

    Raises:
        UsageError: the text has no such pairs, or ``--tokens-per-sample`` is too small.
    """

    def __init__(
        self, lines: FairseqDataset, cfg: Options, dictionary: Dictionary, name: str
    ) -> None:
        self.lines, self.seed = lines, cfg.seed
        self.relation, self.unit = str(cfg.pairs), str(cfg.unit)
        self.begin = torch.tensor([dictionary.bos()])
        self.end = torch.tensor([dictionary.eos()])
        separator = [] if cfg.separator_token is None else [cfg.separator_token]
        self.between = torch.tensor([dictionary.eos(), *separator])
        special = 2 + len(self.between)
        self.room = cfg.tokens_per_sample - special
        if self.room < 2:
            raise UsageError(
                f"--tokens-per-sample {cfg.tokens_per_sample}: a pair of two tokens and {special} "
                f"special ones does not fit; give at least {special + 2}"
            )
        self.text = Documents(lines.sizes)
        self.first, self.last = self.text.blocks(self.unit, self.room)
        self._check(name)
        self.epoch = 0
        self.set_epoch(1)

    def _check(self, name: str) -> None:
        documents, lines = len(self.text.bounds) - 1, len(self.text.numbers)
        flag = f"--pairs {self.relation}"
        if self.relation == NEXT and documents < 2:
            raise UsageError(
                f"{flag}: {name} has {documents} document, but needs others for random texts; "
                f"separate documents by blank lines, or give --pairs {ORDER}"
            )
        if not len(self.first):
            fit = f" that fit into {self.room} tokens" if self.unit == SEGMENT else ""
            raise UsageError(
                f"{flag}: no document of {name} has two lines in a row{fit}; give one sentence "
                "per line, and blank lines between documents only"
            )
        single = int(np.sum(np.diff(self.text.bounds) == 1))
        logger.info(
            "%s: %d pairs of %ss from %d lines in %d documents, %d of which have one line and "
            "give no pair",
            *(name, len(self.first), self.unit, lines, documents, single),
        )

    def set_epoch(self, epoch: int, **unused: object) -> None:
        """Draw the pairs of an epoch."""
        if epoch == self.epoch:
            return
        self.epoch = epoch
        draw, text, count = np.random.default_rng([self.seed, epoch]), self.text, len(self.first)
        division = self.first + 1 + draw.integers(0, self.last - self.first - 1)
        a, b = (self.first, division), (division, self.last)
        other = draw.random(count) < 0.5
        if self.relation == NEXT:
            c = self._elsewhere(draw, division)
            b = (np.where(other, c[0], b[0]), np.where(other, c[1], b[1]))
        else:
            swapped = [(np.where(other, y, x), np.where(other, x, y)) for x, y in zip(a, b)]
            a, b = zip(*swapped)
        tokens_a, tokens_b = text.tokens(*a), text.tokens(*b)
        self.tokens_a = np.minimum(tokens_a, np.maximum(self.room - tokens_b, self.room // 2))
        self.tokens_b = np.minimum(tokens_b, self.room - self.tokens_a)
        self.a, self.b = a, b
        self.relations = other.astype(np.int64)
        self.sizes = self.tokens_a + self.tokens_b + 2 + len(self.between)

    def _elsewhere(
        self, draw: np.random.Generator, division: np.ndarray
    ) -> Tuple[np.ndarray, np.ndarray]:
        """Draw lines of another document for every block.

        They are about as long as the text that they replace, so that the length of a pair does not
        show whether it is random.  Where a block ends before its document does, as many lines are
        taken as fit.  A first line that does not fit is drawn again.
        """
        text, document = self.text, self.text.document[self.first]
        bounds = text.bounds[document], text.bounds[document + 1]
        first = text.draw_elsewhere(draw, *bounds)
        if self.unit == SENTENCE:
            return first, first + 1
        room = self.room - text.tokens(self.first, division)
        for _ in range(_DRAWS):
            misfits = np.flatnonzero(text.tokens(first, first + 1) > room)
            first[misfits] = text.draw_elsewhere(draw, *(bound[misfits] for bound in bounds))
        replaced = text.tokens(division, self.last)
        last = np.where(
            self.last == bounds[1],
            text.nearest(first, np.minimum(replaced, room)),
            np.searchsorted(text.before, text.before[first] + room, side="right") - 1,
        )
        return first, np.clip(last, first + 1, text.bounds[text.document[first] + 1])

    def _read(self, first: int, last: int) -> Tensor:
        numbers = self.text.numbers[first:last]
        return torch.cat([self.lines[number][:-1] for number in numbers])

    def __getitem__(self, index: int) -> Tensor:
        a, b = (self._read(side[0][index], side[1][index]) for side in (self.a, self.b))
        a, b = a[len(a) - self.tokens_a[index] :], b[: self.tokens_b[index]]
        return torch.cat([self.begin, a, self.between, b, self.end])

    @property
    def supports_prefetch(self) -> bool:
        """Whether the lines have to be fetched in advance."""
        return getattr(self.lines, "supports_prefetch", False)

    def prefetch(self, indices: Collection[int]) -> None:
        """Fetch the lines of pairs."""
        wanted = [
            self.text.numbers[side[0][index] : side[1][index]]
            for index in indices
            for side in (self.a, self.b)
        ]
        self.lines.prefetch(np.unique(np.concatenate(wanted)))
