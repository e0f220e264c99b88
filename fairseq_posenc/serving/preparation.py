"""From raw text to the tokens of a model, and back, in the same way for training and serving."""

import os
from typing import Dict, List, NamedTuple, Optional

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
        self._text = text
        self._words: Dict[str, Split] = {}
        path = None if text.subword_file is None else os.path.join(folder, text.subword_file)
        self._subwords = self._target_subwords = KINDS[text.subwords](path)
        if text.target_subword_file is not None:
            path = os.path.join(folder, text.target_subword_file)
            self._target_subwords = KINDS[text.subwords](path)
        lang = text.target_lang or text.source_lang or "en"
        self._detokenize = joiner_of(text.tokenizer, lang)

    @property
    def mask(self) -> str:
        """The spelling of the symbol ``<mask>`` that the subwords know in raw text."""
        return self._subwords.mask

    def source(self, line: str) -> List[str]:
        """The tokens of a line of the source language."""
        return self._tokens(line, self._text.source_lang, self._subwords)

    def target(self, line: str) -> List[str]:
        """The tokens of a line of the target language."""
        return self._tokens(line, self._text.target_lang, self._target_subwords)

    def _tokens(self, line: str, lang: Optional[str], subwords: Subwords) -> List[str]:
        if self._text.subwords in RAW:
            return subwords.split(line)
        key = lang or ""
        if key not in self._words:
            text = self._text
            self._words[key] = words_of(text.tokenizer, lang, text.dash_splits, text.lowercase)
        return subwords.split(" ".join(self._words[key](line)))

    def restore(self, tokens: List[str]) -> str:
        """The text of tokens of the target language, on one line."""
        words = self.words(tokens)
        text = words if self._text.subwords in RAW else self._detokenize(words.split())
        return " ".join(text.split())

    def words(self, tokens: List[str]) -> str:
        """The words of tokens, separated by spaces and not detokenised."""
        return self._target_subwords.join(tokens)
