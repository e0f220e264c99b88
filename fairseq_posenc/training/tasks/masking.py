"""Masks of whole words, phrases or spans of words.

Whole words: BERT, Devlin et al., arXiv 1810.04805, in its released code.  Phrases: ERNIE, Sun et
al. 2019, arXiv 1904.09223, section 3.2.  Spans: SpanBERT, Joshi et al. 2020, arXiv 1907.10529,
section 3.1.
"""

from typing import Callable, List, Optional, Tuple

import numpy as np
import torch
from fairseq.data import Dictionary, FairseqDataset
from torch import Tensor

from fairseq_posenc.training.tasks.words import Phrases, Words

#: SpanBERT section 3.1, for lengths in words
GEOMETRIC, LONGEST = 0.2, 10

#: units to mask together, as pairs of the first unit and that after the last
Groups = List[Tuple[int, int]]
#: chooses groups: of (U,) units those that may be masked, the share to mask, random numbers
Choice = Callable[[np.ndarray, float, np.random.Generator], Groups]


def _rounded(expected: float, draw: np.random.Generator) -> int:
    """A whole number with this expected value."""
    return int(expected + draw.random())


def single_units(maskable: np.ndarray, share: float, draw: np.random.Generator) -> Groups:
    """Choose units with equal probability.

    Args:
        maskable: (U,), False for units that are never masked.
        share: the share of the others to mask.
        draw: random numbers.
    """
    candidates = np.flatnonzero(maskable)
    chosen = draw.choice(candidates, _rounded(share * len(candidates), draw), replace=False)
    return [(unit, unit + 1) for unit in chosen.tolist()]


def span_lengths() -> np.ndarray:
    """The probabilities of lengths from 1 to :data:`LONGEST`.

    They are those of Geo(:data:`GEOMETRIC`), divided by their sum; the mean is 3.8, as in the
    paper.
    """
    weights: np.ndarray = (1 - GEOMETRIC) ** np.arange(LONGEST)
    return weights / weights.sum()


class GeometricSpans:
    """Chooses spans of geometric lengths, with at least one unit between any two.

    Before the first, a part of a span counts as masked already.  Drawn as here, it makes up on
    average for the part of the last span that exceeds the share, as in a renewal process that began
    long ago: the expected share is exact, and the lengths are those of :func:`span_lengths`.
    """

    def __init__(self) -> None:
        lengths = span_lengths()
        longer = 1 - np.cumsum(lengths) + lengths  # at least 1 unit, at least 2 units, ...
        self.lengths, self.before = _cumulated(lengths), _cumulated(longer)

    def __call__(self, maskable: np.ndarray, share: float, draw: np.random.Generator) -> Groups:
        """Choose spans; one that is longer than every free stretch is as long as the longest.

        Args:
            maskable: (U,), False for units that are never masked, as are the first and the last,
                because a span lies between two units.
            share: the share of the others to mask.
            draw: random numbers.
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
    """Cumulated probabilities; the last is 1."""
    total: np.ndarray = np.cumsum(weights)
    return total / total[-1]


def _drawn(cumulated: np.ndarray, draw: np.random.Generator) -> int:
    """An index with these cumulated probabilities."""
    return int(np.searchsorted(cumulated, draw.random(), side="right"))


def _stretches(free: np.ndarray, length: int) -> np.ndarray:
    """Where stretches of *length* free units begin."""
    taken = np.concatenate(([0], np.cumsum(~free)))
    return np.flatnonzero(taken[length:] == taken[:-length])


class UnitMasks:
    """Masks units of samples; all tokens of a group are masked, replaced or left alone together.

    Masks depend on the seed, the epoch and the number of the sample alone.  ``<s>`` and ``</s>``
    are never masked.

    Args:
        samples: one-dimensional.
        dictionary: the dictionary.
        words: finds the words of a sample.
        phrases: joins words, or None.
        choice: chooses what is masked.
        mask_idx: the token that stands for masked ones.
        seed: the seed of the random numbers.
        mask_prob: share of the units to mask.
        leave_unmasked_prob: the share of these to leave as they are.
        random_token_prob: the share of these to replace by random tokens.
        freq_weighted_replacement: draw them by their frequency in the dictionary.
    """

    def __init__(
        self,
        samples: FairseqDataset,
        dictionary: Dictionary,
        words: Words,
        phrases: Optional[Phrases],
        choice: Choice,
        mask_idx: int,
        seed: int,
        mask_prob: float,
        leave_unmasked_prob: float,
        random_token_prob: float,
        freq_weighted_replacement: bool,
    ) -> None:
        self.samples, self.words, self.phrases, self.choice = samples, words, phrases, choice
        self.mask_idx, self.padding, self.seed, self.epoch = mask_idx, dictionary.pad(), seed, 0
        self.share, self.leave, self.replace = mask_prob, leave_unmasked_prob, random_token_prob
        self.special = np.full(len(dictionary), False)
        self.special[[dictionary.bos(), dictionary.pad(), dictionary.eos()]] = True
        weights = np.ones(len(dictionary))
        if freq_weighted_replacement:
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
        draw = np.random.default_rng((self.seed % 2**32, self.epoch, index))
        source, target = tokens.copy(), np.full_like(tokens, self.padding)
        for start, end in self._chosen(tokens, draw):
            target[start:end] = tokens[start:end]
            fate = draw.random()
            if fate < self.replace:
                drawn = np.searchsorted(self.random_tokens, draw.random(end - start), side="right")
                source[start:end] = drawn
            elif fate >= self.replace + self.leave:
                source[start:end] = self.mask_idx
        return torch.from_numpy(source), torch.from_numpy(target)

    def _chosen(self, tokens: np.ndarray, draw: np.random.Generator) -> Groups:
        """Groups of *tokens* (T,) to mask, as pairs of the first token and that after the last."""
        special = self.special[tokens]
        starts = self.words.starts(tokens) | special
        starts[1:] |= special[:-1]
        if self.phrases is not None:
            starts = self.phrases.join(tokens, starts)
        edges = np.append(np.flatnonzero(starts), len(tokens))
        maskable = ~special[edges[:-1]]
        return [(edges[a], edges[b]) for a, b in self.choice(maskable, self.share, draw)]
