"""Splitting words into the symbols of a model, and joining symbols to words.

Each entry of :data:`KINDS` is a way in which a recipe, or ``fairseq-posenc tokenize``, splits text.
"""

import re
from typing import Any, Callable, Dict, List, NamedTuple, Optional

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.packages import import_extra
from fairseq_posenc.text import tokenizer

Split = Callable[[str], List[str]]
Join = Callable[[List[str]], str]

_HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
#: A Chinese character; letters and digits of other scripts together; any other sign.
_PARTS = re.compile(f"[{_HAN}]|[^\\W_{_HAN}]+|\\S")
_BESIDE_HAN = re.compile(f"(?<=[{_HAN}]) | (?=[{_HAN}])")


class Subwords(NamedTuple):
    """A way to split text.

    Args:
        split: the symbols of a line of words.
        join: the words of symbols, on one line.
    """

    split: Split
    join: Join


def _none(path: Optional[str]) -> Subwords:
    return Subwords(str.split, " ".join)


def _merges(path: str) -> Any:
    module = import_extra("subword_nmt.apply_bpe", "--subwords subword-nmt")
    try:
        with open(path, encoding="utf-8") as codes:
            return module.BPE(codes)
    except (OSError, ValueError, SystemExit) as error:
        raise UsageError(f"{path}: cannot be read as merges of subword-nmt ({error})") from error


def _subword_nmt(path: Optional[str]) -> Subwords:
    merges = _merges(str(path))
    return Subwords(lambda line: merges.process_line(line).split(), _without_marks)


def _without_marks(symbols: List[str]) -> str:
    return (" ".join(symbols) + " ").replace("@@ ", "").strip()


def _marked_pieces(path: Optional[str]) -> Subwords:
    """Chinese characters, signs and word pieces, as ``examples/clue_pretraining`` makes them."""
    merges = _merges(str(path))

    def of_word(word: str) -> List[str]:
        found: List[str] = []
        for part in _PARTS.findall(word):
            pieces = merges.process_line(part).replace("@@ ", " ")
            found += [part] if len(part) == 1 else pieces.split()
        return found[:1] + ["##" + symbol for symbol in found[1:]]

    return _marked(of_word)


def _marked(of_word: Split) -> Subwords:
    """Words of Chinese text, whose symbols are marked with ## but for the first."""

    def join(symbols: List[str]) -> str:
        text = (" " + " ".join(symbols)).replace(" ##", "").strip()
        return _BESIDE_HAN.sub("", text)

    return Subwords(lambda line: [s for word in line.split() for s in of_word(word)], join)


def _marked_words(path: Optional[str]) -> Subwords:
    """The words of a list, and the characters of others, as in ``examples/long_chinese``."""
    try:
        with open(str(path), encoding="utf-8") as stream:
            known = set(stream.read().split("\n"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: cannot be read as a list of words ({error})") from error

    def of_word(word: str) -> List[str]:
        if word in known:
            return [word]
        return [word[0], *("##" + character for character in word[1:])]

    return _marked(of_word)


def _sentencepiece(path: Optional[str]) -> Subwords:
    module = import_extra("sentencepiece", "--subwords sentencepiece")
    try:
        pieces = module.SentencePieceProcessor(model_file=path)
    except (OSError, RuntimeError) as error:
        raise UsageError(f"{path}: cannot be read as a model of SentencePiece ({error})") from error
    return Subwords(lambda line: pieces.encode(line, out_type=str), pieces.decode_pieces)


def _transformers(path: Optional[str]) -> Subwords:
    loaded = tokenizer.load(str(path))
    return Subwords(lambda line: loaded.split([line])[0], loaded.join)


def _bytes(symbols: Dict[int, str]) -> Subwords:
    """Each byte is a symbol, as in ``examples/language_model``; others are unknown to the model."""
    numbers = {symbol: byte for byte, symbol in symbols.items()}

    def split(line: str) -> List[str]:
        return [symbols.get(byte, chr(byte)) for byte in line.encode("utf-8")]

    def join(found: List[str]) -> str:
        known = bytes(numbers[symbol] for symbol in found if symbol in numbers)
        return known.decode("utf-8", "replace")

    return Subwords(split, join)


def _text8(path: Optional[str]) -> Subwords:
    return _bytes({ord(" "): "_", **{byte: chr(byte) for byte in range(ord("a"), ord("z") + 1)}})


def _enwik8(path: Optional[str]) -> Subwords:
    return _bytes({b: chr(b) if 0x21 <= b <= 0x7E else f"<{b:02X}>" for b in range(256)})


#: From the path of the file in a model folder, if there is one.
KINDS: Dict[str, Callable[[Optional[str]], Subwords]] = {
    "none": _none,
    "subword-nmt": _subword_nmt,
    "marked-pieces": _marked_pieces,
    "marked-words": _marked_words,
    "sentencepiece": _sentencepiece,
    "transformers": _transformers,
    "text8": _text8,
    "enwik8": _enwik8,
}
