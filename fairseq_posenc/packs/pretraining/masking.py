"""Masks of whole words, phrases or spans of words.

Whole words: BERT, Devlin et al., arXiv 1810.04805, in its released code.  Phrases: ERNIE, Sun et
al. 2019, arXiv 1904.09223, section 3.2.  Spans: SpanBERT, Joshi et al. 2020, arXiv 1907.10529,
section 3.1.
"""

import logging
import os
from collections import Counter
from typing import Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence, Set, Tuple

import numpy as np
import torch
from fairseq.data import Dictionary, FairseqDataset
from fairseq.tasks.masked_lm import MaskedLMConfig
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.lines import read_lines

logger = logging.getLogger(__name__)

#: Marks of words in symbols: a prefix of the first piece (SentencePiece, byte-level BPE), a prefix
#: of all other pieces (WordPiece), or a suffix of all pieces but the last (subword-nmt).
_BEGIN, _INSIDE, _GOES_ON = ("\u2581", "\u0120"), ("##",), ("@@",)
_FEWEST = 0.01  # least share of symbols with a mark
#: Parameter of the distribution of span lengths, and the longest span in words (SpanBERT 3.1).
GEOMETRIC, LONGEST = 0.2, 10

#: Groups of units to mask together, as pairs of the first unit and the one after the last.
Groups = List[Tuple[int, int]]
#: Chooses groups, given which units may be masked (U,), the share to mask, and a generator.
Choice = Callable[[np.ndarray, float, np.random.Generator], Groups]


class Words(NamedTuple):
    """Where words begin and continue, for each symbol of a dictionary."""

    begins: np.ndarray  # (V,), whether a symbol is the first piece of a word
    goes_on: np.ndarray  # (V,), whether the next token belongs to the same word

    def starts(self, tokens: np.ndarray) -> np.ndarray:
        """Whether each of *tokens* (T,) is the first of a word, (T,)."""
        starts: np.ndarray = self.begins[tokens].copy()
        starts[1:] &= ~self.goes_on[tokens[:-1]]
        starts[:1] = True
        return starts


def single_tokens(dictionary: Dictionary) -> Words:
    """Word boundaries that make every token a word."""
    return Words(np.full(len(dictionary), True), np.full(len(dictionary), False))


def marked_words(dictionary: Dictionary) -> Optional[Words]:
    """The word boundaries that symbols of *dictionary* mark in a usual way, or None."""
    symbols = dictionary.symbols
    counts: Counter = Counter()
    for symbol in symbols[dictionary.nspecial :]:
        counts.update(m for m in (*_BEGIN, *_INSIDE) if symbol.startswith(m) and symbol != m)
        counts.update(m for m in _GOES_ON if symbol.endswith(m) and symbol != m)
    mark, count = max(counts.items(), key=lambda item: item[1], default=("", 0))
    if count < _FEWEST * len(symbols) or not count:
        return None
    words = single_tokens(dictionary)
    if mark in _BEGIN:
        words.begins[:] = [symbol.startswith(mark) for symbol in symbols]
    elif mark in _INSIDE:
        words.begins[:] = [not symbol.startswith(mark) for symbol in symbols]
    else:
        words.goes_on[:] = [symbol.endswith(mark) for symbol in symbols]
    return words


class Phrases:
    """Known phrases of whole words; a text is searched from left to right for the longest one."""

    def __init__(self, phrases: Iterable[Sequence[int]]) -> None:
        self.known: Dict[int, Set[Tuple[int, ...]]] = {}
        for phrase in phrases:
            self.known.setdefault(phrase[0], set()).add(tuple(phrase))
        self.lengths: Dict[int, List[int]] = {
            first: sorted({len(phrase) for phrase in group}, reverse=True)
            for first, group in self.known.items()
        }

    def join(self, tokens: np.ndarray, starts: np.ndarray) -> np.ndarray:
        """True at each of *tokens* (T,) that begins a phrase, or a word outside phrases.

        *starts* (T,) is True at the first token of each word.
        """
        text, joined = tokens.tolist(), starts.copy()
        ends = np.append(starts, True)
        position = 0
        while position < len(text):
            length = self._longest(text, position, ends) if starts[position] else 0
            joined[position + 1 : position + length] = False
            position += max(length, 1)
        return joined

    def _longest(self, text: List[int], position: int, ends: np.ndarray) -> int:
        """Number of tokens of the longest phrase that begins at *position*, 0 if none does."""
        known = self.known.get(text[position], set())
        for length in self.lengths.get(text[position], ()):
            end = position + length
            if end < len(ends) and ends[end] and tuple(text[position:end]) in known:
                return length
        return 0


def read_phrases(path: str, dictionary: Dictionary) -> Phrases:
    """Read a file with one phrase per line, in symbols of *dictionary*.

    Phrases with unknown symbols are left out.

    Raises:
        UsageError: the file is missing or not a text, or all phrases have unknown symbols.
    """
    if not os.path.isfile(path):
        raise UsageError(f"--phrases {path}: no such file; give a text file, one phrase per line")
    texts = read_lines(path, f"--phrases {path}")
    lines = [line.split() for line in texts if line.strip()]
    phrases = [[dictionary.index(symbol) for symbol in line] for line in lines]
    known = [phrase for phrase in phrases if min(phrase) >= dictionary.nspecial]
    if not known:
        raise UsageError(
            f"--phrases {path}: has no phrase in the symbols of the dictionary; split it like "
            "the training text, into symbols separated by blanks"
        )
    logger.info("--phrases %s: %d phrases, %d of them usable", path, len(phrases), len(known))
    return Phrases(known)


def _rounded(expected: float, draw: np.random.Generator) -> int:
    """*expected*, rounded at random so that its mean is exact."""
    return int(expected + draw.random())


def single_units(maskable: np.ndarray, share: float, draw: np.random.Generator) -> Groups:
    """Choose a *share* of the *maskable* units, with equal probability."""
    candidates = np.flatnonzero(maskable)
    chosen = draw.choice(candidates, _rounded(share * len(candidates), draw), replace=False)
    return [(unit, unit + 1) for unit in chosen.tolist()]


def span_lengths() -> np.ndarray:
    """The probabilities of lengths from 1 to :data:`LONGEST`.

    They follow Geo(:data:`GEOMETRIC`), divided by their sum; the mean is 3.8, as in the paper.
    """
    weights: np.ndarray = (1 - GEOMETRIC) ** np.arange(LONGEST)
    return weights / weights.sum()


class GeometricSpans:
    """Chooses spans of geometric lengths, with at least one unit between any two.

    The lengths follow :func:`span_lengths`.  The last span may exceed the share to mask.  To keep
    the expected share exact, a random number of units counts as masked before the first span is
    chosen.  This number has the distribution of the age in a renewal process.
    """

    def __init__(self) -> None:
        lengths = span_lengths()
        longer = 1 - np.cumsum(lengths) + lengths  # at least 1 unit, at least 2 units, ...
        self.lengths, self.before = _cumulated(lengths), _cumulated(longer)

    def __call__(self, maskable: np.ndarray, share: float, draw: np.random.Generator) -> Groups:
        """Choose spans; a span longer than every free stretch is shortened to the longest stretch.

        The first and the last unit are never masked, because a span lies between two units.
        """
        free, spans = maskable.copy(), []
        free[:1] = free[-1:] = False
        budget = _rounded(share * free.sum(), draw)
        masked = _drawn(self.before, draw)
        while masked < budget:
            length = 1 + _drawn(self.lengths, draw)
            starts = _stretches(free, length)
            while not len(starts) and length > 1:
                length -= 1
                starts = _stretches(free, length)
            if not len(starts):
                break
            start = int(draw.choice(starts))
            free[max(start - 1, 0) : start + length + 1] = False
            spans.append((start, start + length))
            masked += length
        return spans


def _cumulated(weights: np.ndarray) -> np.ndarray:
    total: np.ndarray = np.cumsum(weights)
    return total / total[-1]


def _drawn(cumulated: np.ndarray, draw: np.random.Generator) -> int:
    """Draw an index from these cumulated probabilities."""
    return int(np.searchsorted(cumulated, draw.random(), side="right"))


def _stretches(free: np.ndarray, length: int) -> np.ndarray:
    """Where stretches of *length* free units begin."""
    taken = np.concatenate(([0], np.cumsum(~free)))
    return np.flatnonzero(taken[length:] == taken[:-length])


class UnitMasks:
    """Masks groups of units: all tokens of a group are masked, or all replaced, or all kept.

    Masks depend only on the seed, the epoch and the index of the sample.  *cfg* has the seed, the
    share to mask, and the shares to replace or leave unchanged; *special* tokens are never masked.
    """

    def __init__(
        self,
        samples: FairseqDataset,
        dictionary: Dictionary,
        words: Words,
        phrases: Optional[Phrases],
        choice: Choice,
        mask_idx: int,
        cfg: MaskedLMConfig,
        special: Sequence[int],
    ) -> None:
        self.samples, self.words, self.phrases, self.choice = samples, words, phrases, choice
        self.mask_idx, self.padding, self.cfg, self.epoch = mask_idx, dictionary.pad(), cfg, 0
        self.special = np.full(len(dictionary), False)
        self.special[list(special)] = True
        weights = np.ones(len(dictionary))
        if cfg.freq_weighted_replacement:
            weights = np.array(dictionary.count, dtype=float)
        weights[: dictionary.nspecial] = weights[mask_idx] = 0
        self.random_tokens = _cumulated(weights)

    def set_epoch(self, epoch: int) -> None:
        """Choose the masks of an epoch."""
        self.samples.set_epoch(epoch)
        self.epoch = epoch

    def __getitem__(self, index: int) -> Tuple[Tensor, Tensor]:
        """The masked sample (T,), and the tokens to predict (T,), padding elsewhere."""
        tokens = self.samples[index].numpy()
        draw = np.random.default_rng((self.cfg.seed % 2**32, self.epoch, index))
        source, target = tokens.copy(), np.full_like(tokens, self.padding)
        replaced = self.cfg.random_token_prob
        for start, end in self._chosen(tokens, draw):
            target[start:end] = tokens[start:end]
            fate = draw.random()
            if fate < replaced:
                drawn = np.searchsorted(self.random_tokens, draw.random(end - start), side="right")
                source[start:end] = drawn
            elif fate >= replaced + self.cfg.leave_unmasked_prob:
                source[start:end] = self.mask_idx
        return torch.from_numpy(source), torch.from_numpy(target)

    def _chosen(self, tokens: np.ndarray, draw: np.random.Generator) -> Groups:
        """Groups of *tokens* (T,) to mask: pairs of the first token and the one after the last."""
        special = self.special[tokens]
        starts = self.words.starts(tokens) | special
        starts[1:] |= special[:-1]
        if self.phrases is not None:
            starts = self.phrases.join(tokens, starts)
        edges = np.append(np.flatnonzero(starts), len(tokens))
        maskable = ~special[edges[:-1]]
        return [(edges[a], edges[b]) for a, b in self.choice(maskable, self.cfg.mask_prob, draw)]
