"""Words and phrases of binarised texts, which are masked together."""

import logging
import os
from collections import Counter
from typing import Dict, Iterable, List, Optional, Sequence, Set, Tuple

import numpy as np
from fairseq.data import Dictionary

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.lines import read_lines

logger = logging.getLogger(__name__)

#: Marks of words in symbols: a prefix of the first piece, a prefix of the others, or a suffix of
#: all but the last (SentencePiece, byte-level BPE; WordPiece; subword-nmt).
_BEGIN, _INSIDE, _GOES_ON = ("\u2581", "\u0120"), ("##",), ("@@",)
_FEWEST = 0.01  # least share of symbols with a mark


class Words:
    """Finds the words of a text.

    Args:
        begins: (V,), whether a symbol is the first piece of a word.
        goes_on: (V,), whether the next token is of the same word.
    """

    def __init__(self, begins: np.ndarray, goes_on: np.ndarray) -> None:
        self.begins, self.goes_on = begins, goes_on

    def starts(self, tokens: np.ndarray) -> np.ndarray:
        """Whether each of *tokens* (T,) is the first of a word, (T,)."""
        starts: np.ndarray = self.begins[tokens].copy()
        starts[1:] &= ~self.goes_on[tokens[:-1]]
        starts[:1] = True
        return starts


def single_tokens(dictionary: Dictionary) -> Words:
    """Every token is a word."""
    return Words(np.full(len(dictionary), True), np.full(len(dictionary), False))


def marked_words(dictionary: Dictionary) -> Optional[Words]:
    """The words that the symbols of *dictionary* mark in the usual way; None if they do not."""
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
    """Known sequences of whole words, found from left to right, the longest first.

    ERNIE, Sun et al. 2019, arXiv 1904.09223, section 3.2.

    Args:
        phrases: each a sequence of tokens.
    """

    def __init__(self, phrases: Iterable[Sequence[int]]) -> None:
        self.known: Dict[int, Set[Tuple[int, ...]]] = {}
        for phrase in phrases:
            self.known.setdefault(phrase[0], set()).add(tuple(phrase))
        self.lengths: Dict[int, List[int]] = {
            first: sorted({len(phrase) for phrase in found}, reverse=True)
            for first, found in self.known.items()
        }

    def join(self, tokens: np.ndarray, starts: np.ndarray) -> np.ndarray:
        """Join the words of phrases.

        Args:
            tokens: (T,).
            starts: (T,), whether a token is the first of a word.

        Returns:
            (T,), whether a token is the first of a phrase, or of a word outside phrases.
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
        """Tokens of the longest phrase that begins at *position*, 0 if there is none."""
        known = self.known.get(text[position], set())
        for length in self.lengths.get(text[position], ()):
            end = position + length
            if end < len(ends) and ends[end] and tuple(text[position:end]) in known:
                return length
        return 0


def read_phrases(path: str, dictionary: Dictionary) -> Phrases:
    """Read a file with a phrase in each line, in the symbols of *dictionary*.

    Phrases with unknown symbols are left out.

    Raises:
        UsageError: there is no such file of text, or no phrase in it is of known symbols.
    """
    if not os.path.isfile(path):
        raise UsageError(f"--phrases {path}: no such file; give a text file, a phrase in each line")
    texts = read_lines(path, f"--phrases {path}")
    lines = [line.split() for line in texts if line.strip()]
    phrases = [[dictionary.index(symbol) for symbol in line] for line in lines]
    known = [phrase for phrase in phrases if min(phrase) >= dictionary.nspecial]
    if not known:
        raise UsageError(
            f"--phrases {path}: has no phrase in the symbols of the dictionary; split it as the "
            "text was split, into pieces separated by blanks"
        )
    logger.info("--phrases %s: %d phrases, %d of them known", path, len(phrases), len(known))
    return Phrases(known)
