"""Preparing raw text for a model, and restoring text from its tokens."""

import unicodedata
from typing import Any, Callable, Dict, List, Optional

from fairseq_posenc.deploy.model_folder import ModelFolder
from fairseq_posenc.errors import UsageError
from fairseq_posenc.extras import import_extra

Split = Callable[[str], List[str]]
Join = Callable[[List[str]], str]


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


def _moses_text(lang: str) -> Join:
    moses = import_extra("sacremoses", "--tokenizer moses").MosesDetokenizer(lang=lang)
    return lambda words: moses.detokenize(words)


def words_of(tokenizer: str, lang: Optional[str], dash_splits: bool = False) -> Split:
    """The function that splits a line into words.

    Args:
        tokenizer: moses, or none for words that are already separated by spaces.
        lang: the language, for Moses.
        dash_splits: split hyphenated words as ``rich @-@ text``.
    """
    return str.split if tokenizer == "none" else _moses_words(lang or "en", dash_splits)


class Preparation:
    """From a line of raw text to tokens, and from tokens to a line.

    Args:
        folder: names the tokeniser and the subwords.

    Raises:
        UsageError: the subwords cannot be read, or a package is missing.
    """

    def __init__(self, folder: ModelFolder) -> None:
        self._text = folder.text
        self._words: Dict[str, Split] = {}
        subwords, file = _SUBWORDS[folder.text.subwords], folder.text.subword_file
        target_file = folder.text.target_subword_file or file
        self._split, self._join = subwords(folder.file(str(file)))
        self._split_target = self._split
        if target_file != file:
            self._split_target, self._join = subwords(folder.file(str(target_file)))
        moses = folder.text.tokenizer == "moses"
        self._detokenize: Join = _moses_text(folder.text.target_lang or "en") if moses else " ".join

    def source(self, line: str) -> List[str]:
        """The tokens of a line of the source language."""
        return self._split(self._tokenize(line, self._text.source_lang))

    def target(self, line: str) -> List[str]:
        """The tokens of a line of the target language."""
        return self._split_target(self._tokenize(line, self._text.target_lang))

    def _tokenize(self, line: str, lang: Optional[str]) -> str:
        key = lang or ""
        if key not in self._words:
            text = self._text
            self._words[key] = words_of(text.tokenizer, lang, text.dash_splits)
        return " ".join(self._words[key](line))

    def restore(self, tokens: List[str]) -> str:
        """The text of tokens of the target language, on one line."""
        return " ".join(self._detokenize(self._join(tokens).split()).split())


def _no_subwords(path: str) -> Any:
    return str.split, " ".join


def _subword_nmt(path: str) -> Any:
    module = import_extra("subword_nmt.apply_bpe", "--subwords subword-nmt")
    try:
        with open(path, encoding="utf-8") as codes:
            bpe = module.BPE(codes)
    except (OSError, ValueError, SystemExit) as error:
        raise UsageError(f"{path}: cannot be read as merges of subword-nmt ({error})") from error

    def split(line: str) -> List[str]:
        return bpe.process_line(line).split()

    return split, lambda tokens: (" ".join(tokens) + " ").replace("@@ ", "").strip()


def _sentencepiece(path: str) -> Any:
    module = import_extra("sentencepiece", "--subwords sentencepiece")
    try:
        pieces = module.SentencePieceProcessor(model_file=path)
    except (OSError, RuntimeError) as error:
        raise UsageError(f"{path}: cannot be read as a model of SentencePiece ({error})") from error
    return lambda line: pieces.encode(line, out_type=str), pieces.decode_pieces


_SUBWORDS: Dict[str, Callable[[str], Any]] = {
    "none": _no_subwords,
    "subword-nmt": _subword_nmt,
    "sentencepiece": _sentencepiece,
}
