"""Preparing raw text for a model, and restoring text from its tokens."""

import tempfile
import unicodedata
from typing import Dict, List, Optional

from fairseq_posenc.basics.packages import import_extra
from fairseq_posenc.serving.model_folder import RAW, ModelFolder
from fairseq_posenc.text.subwords import KINDS, Join, Split, Subwords


class _Printable(Dict[int, str]):
    """Translation table that turns characters of Unicode's C categories into spaces."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        self[code] = " " if unicodedata.category(character)[0] == "C" else character
        return self[code]


def _moses_words(lang: str, dash_splits: bool) -> Split:
    """Normalises punctuation and splits words, as ``examples/common/moses.py`` does."""
    sacremoses = import_extra("sacremoses", "--tokenizer moses")
    printable = _Printable()
    normalizer = sacremoses.MosesPunctNormalizer(lang=lang)
    moses = sacremoses.MosesTokenizer(lang=lang)

    def split(line: str) -> List[str]:
        line = normalizer.normalize(" ".join(line.translate(printable).split()))
        return moses.tokenize(line, aggressive_dash_splits=dash_splits)

    return split


def joiner_of(tokenizer: str, lang: str) -> Join:
    """The function that restores plain text from words.

    Args:
        tokenizer: what split the text; the words of others than moses are joined by spaces.
        lang: the language, for Moses.
    """
    if tokenizer != "moses":
        return " ".join
    moses = import_extra("sacremoses", "--tokenizer moses").MosesDetokenizer(lang=lang)
    return lambda words: moses.detokenize(words)


def _jieba_words() -> Split:
    """Words of jieba (accurate mode), as ``examples/clue_pretraining/segmenter.py`` finds them."""
    jieba = import_extra("jieba", "--tokenizer jieba")
    jieba.setLogLevel("ERROR")
    # its cache is marshalled Python, which anybody could have written to a shared folder
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
        lang: the language, for Moses.
        dash_splits: split hyphenated words as ``rich @-@ text``.
        lowercase: lower-case the text, for jieba after splitting: its words have capitals.
    """
    if tokenizer == "jieba":
        cut = _jieba_words()
        return lambda line: [word.lower() for word in cut(line)] if lowercase else cut(line)
    split = str.split if tokenizer == "none" else _moses_words(lang or "en", dash_splits)
    return lambda line: split(line.lower() if lowercase else line)


class Preparation:
    """From a line of raw text to tokens, and from tokens to a line.

    Args:
        folder: names the tokeniser and the subwords.

    Raises:
        UsageError: the subwords cannot be read, or a package is missing.
    """

    def __init__(self, folder: ModelFolder) -> None:
        text = folder.text
        self._text = text
        self._words: Dict[str, Split] = {}
        path = None if text.subword_file is None else folder.file(text.subword_file)
        self._subwords = self._target_subwords = KINDS[text.subwords](path)
        if text.target_subword_file is not None:
            self._target_subwords = KINDS[text.subwords](folder.file(text.target_subword_file))
        lang = text.target_lang or text.source_lang or "en"
        self._detokenize = joiner_of(text.tokenizer, lang)

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
        return " ".join(self.text(tokens).split())

    def text(self, tokens: List[str]) -> str:
        """The text of tokens, with the white space of subwords that have symbols for it."""
        words = self.words(tokens)
        return words if self._text.subwords in RAW else self._detokenize(words.split())

    def words(self, tokens: List[str]) -> str:
        """The words of tokens, separated by spaces and not detokenised."""
        return self._target_subwords.join(tokens)
