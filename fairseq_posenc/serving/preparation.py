"""From raw text to the tokens of a model, and back, in the same way for training and serving."""

import functools
import os
import tempfile
import unicodedata
from typing import List, NamedTuple, Optional

from fairseq_posenc.basics.packages import import_extra
from fairseq_posenc.serving.subwords import KINDS, RAW, Join, Split, Subwords

TOKENIZERS = ("moses", "jieba", "none")


class Text(NamedTuple):
    """The preparation of a model's text."""

    source_lang: Optional[str] = None  # language of the source, or the only language
    target_lang: Optional[str] = None  # language of the target
    tokenizer: str = "none"  # one of :data:`TOKENIZERS`
    dash_splits: bool = False  # whether Moses split hyphenated words
    subwords: str = "none"  # one of :data:`~fairseq_posenc.serving.subwords.SUBWORDS`
    subword_file: Optional[str] = None  # the name of the subword file in the folder, or None
    lowercase: bool = False  # whether text was lower-cased
    target_subword_file: Optional[str] = None  # the file for the target, if it differs


class Preparation:
    """Turns a line of raw text into tokens, and tokens back into a line.

    Args:
        text: the settings of the tokeniser and the subwords.
        folder: the folder of the subword files.

    Raises:
        UsageError: the subwords cannot be read, or a package is missing.
    """

    def __init__(self, text: Text, folder: str = "") -> None:
        def subwords(file: Optional[str]) -> Subwords:
            return KINDS[text.subwords](None if file is None else os.path.join(folder, file))

        @functools.lru_cache(maxsize=None)
        def words(lang: Optional[str]) -> Split:
            return words_of(text.tokenizer, lang, text.dash_splits, text.lowercase)

        self._text, self._words = text, words
        self._subwords = self._target_subwords = subwords(text.subword_file)
        if text.target_subword_file is not None:
            self._target_subwords = subwords(text.target_subword_file)
        #: the text that becomes the symbol ``<mask>``
        self.mask = self._subwords.mask
        #: joins tokens of the target language into words, separated by spaces
        self.words = self._target_subwords.join
        lang = text.target_lang or text.source_lang or "en"
        self._detokenize = joiner_of(text.tokenizer, lang)

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


def _moses_words(lang: str, dash_splits: bool) -> Split:
    """A function that normalises punctuation and splits a line into words, as Moses does.

    Before that, each character of Unicode's C categories (control, format, private use) becomes a
    space, and then each run of white space becomes a single space.
    """
    sacremoses = import_extra("sacremoses", "tokenizer moses")
    normalizer = sacremoses.MosesPunctNormalizer(lang=lang)
    moses = sacremoses.MosesTokenizer(lang=lang)

    def split(line: str) -> List[str]:
        printable = "".join(" " if unicodedata.category(c)[0] == "C" else c for c in line)
        line = normalizer.normalize(" ".join(printable.split()))
        return moses.tokenize(line, aggressive_dash_splits=dash_splits, return_str=True).split()

    return split


def _jieba_words() -> Split:
    jieba = import_extra("jieba", "tokenizer jieba")
    jieba.setLogLevel("ERROR")
    # jieba's cache is marshalled Python, which anybody could have written to a shared folder
    with tempfile.TemporaryDirectory() as folder:
        jieba.dt.tmp_dir = folder
        jieba.initialize()
    return lambda line: " ".join(jieba.cut(line)).split()


def words_of(
    tokenizer: str, lang: Optional[str], dash_splits: bool = False, lowercase: bool = False
) -> Split:
    """The function that splits a line into words.

    Args:
        tokenizer: moses; jieba; or none for words that are already separated by spaces.
        lang: the language, for Moses; English by default.
        dash_splits: split hyphenated words as ``rich @-@ text``.
        lowercase: lower-case the text; jieba splits first, because its word list has capitals.
    """
    if tokenizer == "jieba":
        cut = _jieba_words()
        return lambda line: [word.lower() for word in cut(line)] if lowercase else cut(line)
    split = str.split if tokenizer == "none" else _moses_words(lang or "en", dash_splits)
    return lambda line: split(line.lower() if lowercase else line)


def joiner_of(tokenizer: str, lang: str) -> Join:
    """The function that restores plain text from words; only Moses does more than join them."""
    if tokenizer != "moses":
        return " ".join
    moses = import_extra("sacremoses", "tokenizer moses").MosesDetokenizer(lang=lang)
    return lambda words: moses.detokenize(words)
