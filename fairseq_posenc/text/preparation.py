"""From raw text to the tokens of a model, and back, in the same way for training and serving."""

import os
from typing import Dict, List, NamedTuple, Optional

from fairseq_posenc.basics.lines import read_lines
from fairseq_posenc.text.parallel import Function, each
from fairseq_posenc.text.subwords import BYTES, KINDS, RAW, Subwords
from fairseq_posenc.text.words import Split, joiner_of, words_of


class Text(NamedTuple):
    """The preparation of a model's text."""

    source_lang: Optional[str] = None  # language of the source, or of all text where there is one
    target_lang: Optional[str] = None  # language of the target
    tokenizer: str = "none"  # one of :data:`~fairseq_posenc.text.words.TOKENIZERS`
    dash_splits: bool = False  # whether Moses split hyphenated words
    subwords: str = "none"  # one of :data:`~fairseq_posenc.text.subwords.SUBWORDS`
    subword_file: Optional[str] = None  # the file in the folder, or None
    lowercase: bool = False  # whether text was lower-cased
    target_subword_file: Optional[str] = None  # the file for the target, where it is not the same


def recorded(folder: str) -> Optional[Text]:
    """The preparation that a recipe has recorded in the file ``text`` of a data folder.

    Args:
        folder: the data folder, which also has the subwords: ``tokenizer``, ``bpe.codes``,
            ``sentencepiece.model`` or ``words.txt``.

    Returns:
        the preparation with the path of the subwords; None if the folder does not say it.
    """
    record = os.path.join(folder, "text")
    lines = read_lines(record) if os.path.isfile(record) else ()
    said = {name: value for name, _, value in (line.partition(" ") for line in lines)}
    if said.get("kind") in BYTES:
        return Text(subwords=said["kind"])
    if os.path.isdir(os.path.join(folder, "tokenizer")):
        return Text(subwords="transformers", subword_file=os.path.join(folder, "tokenizer"))
    kind, segmenter, tokenizer, lang = said.get("subwords"), said.get("segmenter"), "none", None
    file = {"sentencepiece": "sentencepiece.model", "marked-words": "words.txt"}.get(str(kind))
    if file is None:
        file, kind = "bpe.codes", "marked-pieces" if segmenter else "subword-nmt"
    if kind == "subword-nmt":
        tokenizer, lang = "moses", said.get("lang")
    elif kind != "sentencepiece" and segmenter != "spaces":
        tokenizer = segmenter or "jieba"
    path = os.path.join(folder, file)
    if not os.path.isfile(path):
        return Text() if said.get("kind") == "wikitext" else None
    return Text(lang, None, tokenizer, False, str(kind), path, not said.get("keep-case"))


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
        return " ".join(self.text(tokens).split())

    def text(self, tokens: List[str]) -> str:
        """The text of tokens, with the white space of subwords that have symbols for it."""
        words = self.words(tokens)
        return words if self._text.subwords in RAW else self._detokenize(words.split())

    def words(self, tokens: List[str]) -> str:
        """The words of tokens, separated by spaces and not detokenised."""
        return self._target_subwords.join(tokens)


def splitter(text: Text) -> Function:
    """The function that splits lines into tokens, separated by spaces.

    Args:
        text: the preparation, with the path of the subwords.
    """
    split = Preparation(text).source
    return each(lambda line: " ".join(split(line)))


def tokens_joiner(text: Text) -> Function:
    """The function that joins lines of tokens to words, separated by spaces.

    Args:
        text: the preparation, with the path of the subwords.
    """
    words = Preparation(text).words
    if text.subwords in RAW:
        return each(lambda line: words(line.split()))
    return each(lambda line: " ".join(words(line.split()).split()))


def word_splitter(
    tokenizer: str, lang: Optional[str], dash_splits: bool, lowercase: bool
) -> Function:
    """The function that splits lines into words, separated by spaces; see :func:`words_of`."""
    split = words_of(tokenizer, lang, dash_splits, lowercase)
    return each(lambda line: " ".join(split(line)))


def word_joiner(lang: str) -> Function:
    """The function that restores plain text of lines of Moses' words."""
    join = joiner_of("moses", lang)
    return each(lambda line: join(line.split()))
