"""From raw text to the tokens of a model, and back, in the same way for training and serving."""

import functools
import os
from typing import List, NamedTuple, Optional

from fairseq_posenc.serving.subwords import KINDS, RAW, Subwords
from fairseq_posenc.serving.words import Split, joiner_of, words_of


class Text(NamedTuple):
    """The preparation of a model's text."""

    source_lang: Optional[str] = None  # language of the source, or of all text where there is one
    target_lang: Optional[str] = None  # language of the target
    tokenizer: str = "none"  # one of :data:`~fairseq_posenc.serving.words.TOKENIZERS`
    dash_splits: bool = False  # whether Moses split hyphenated words
    subwords: str = "none"  # one of :data:`~fairseq_posenc.serving.subwords.SUBWORDS`
    subword_file: Optional[str] = None  # the file in the folder, or None
    lowercase: bool = False  # whether text was lower-cased
    target_subword_file: Optional[str] = None  # the file for the target, where it is not the same


class Preparation:
    """The way from a line of raw text to tokens, and from tokens back to a line.

    Args:
        text: the tokeniser and the subwords.
        folder: the folder of their files.

    Raises:
        UsageError: the subwords cannot be read, or a package is missing.
    """

    def __init__(self, text: Text, folder: str = "") -> None:
        def subwords(file: Optional[str]) -> Subwords:
            return KINDS[text.subwords](None if file is None else os.path.join(folder, file))

        def words(lang: Optional[str]) -> Split:
            return words_of(text.tokenizer, lang, text.dash_splits, text.lowercase)

        self._text, self._words = text, functools.lru_cache(maxsize=None)(words)
        self._subwords = self._target_subwords = subwords(text.subword_file)
        if text.target_subword_file is not None:
            self._target_subwords = subwords(text.target_subword_file)
        lang = text.target_lang or text.source_lang or "en"
        self._detokenize = joiner_of(text.tokenizer, lang)

    @property
    def mask(self) -> str:
        """The spelling of the symbol ``<mask>`` that the subwords know in raw text."""
        return self._subwords.mask

    def source(self, line: str) -> List[str]:
        """The tokens of a line of the source language."""
        return self._subwords.split(self._split(line, self._text.source_lang))

    def target(self, line: str) -> List[str]:
        """The tokens of a line of the target language."""
        return self._target_subwords.split(self._split(line, self._text.target_lang))

    def _split(self, line: str, lang: Optional[str]) -> str:
        return line if self._text.subwords in RAW else " ".join(self._words(lang)(line))

    def restore(self, tokens: List[str]) -> str:
        """The text of tokens of the target language, on one line."""
        words = self.words(tokens)
        text = words if self._text.subwords in RAW else self._detokenize(words.split())
        return " ".join(text.split())

    def words(self, tokens: List[str]) -> str:
        """The words of tokens, separated by spaces and not detokenised."""
        return self._target_subwords.join(tokens)
