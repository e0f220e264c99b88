"""Splitting text into words, and joining words to text."""

import tempfile
import unicodedata
from typing import Callable, List, Optional

from fairseq_posenc.basics.packages import import_extra

Split = Callable[[str], List[str]]
Join = Callable[[List[str]], str]
TOKENIZERS = ("moses", "jieba", "none")


def _printable(line: str) -> str:
    """A line with spaces in place of the characters of Unicode's C categories."""
    return "".join(" " if unicodedata.category(c)[0] == "C" else c for c in line)


def _moses_words(lang: str, dash_splits: bool) -> Split:
    """Normalises punctuation and splits words, by Moses' rules.

    Control, format and private-use characters become spaces before, and runs of white space a
    single space.
    """
    sacremoses = import_extra("sacremoses", "the words of Moses")
    normalizer = sacremoses.MosesPunctNormalizer(lang=lang)
    moses = sacremoses.MosesTokenizer(lang=lang)

    def split(line: str) -> List[str]:
        line = normalizer.normalize(" ".join(_printable(line).split()))
        return moses.tokenize(line, aggressive_dash_splits=dash_splits, return_str=True).split()

    return split


def _jieba_words() -> Split:
    """The words of jieba in its accurate mode."""
    jieba = import_extra("jieba", "the words of jieba")
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
        lowercase: lower-case the text, for jieba after splitting: its words have capitals.

    Raises:
        UsageError: a package is missing.
    """
    if tokenizer == "jieba":
        cut = _jieba_words()
        return lambda line: [word.lower() for word in cut(line)] if lowercase else cut(line)
    split = str.split if tokenizer == "none" else _moses_words(lang or "en", dash_splits)
    return lambda line: split(line.lower() if lowercase else line)


def joiner_of(tokenizer: str, lang: str) -> Join:
    """The function that restores plain text from words.

    Args:
        tokenizer: what split the text; the words of others than moses are joined by spaces.
        lang: the language, for Moses.
    """
    if tokenizer != "moses":
        return " ".join
    moses = import_extra("sacremoses", "the words of Moses").MosesDetokenizer(lang=lang)
    return lambda words: moses.detokenize(words)
