"""Splitting words into the symbols of a model, and joining symbols into words.

Each entry of :data:`KINDS` is a way in which recipes and model folders split text.
"""

import contextlib
import io
import re
from typing import Any, Callable, Dict, List, NamedTuple, Optional

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.lines import read_lines
from fairseq_posenc.basics.packages import import_extra

Split = Callable[[str], List[str]]
Join = Callable[[List[str]], str]

#: The prefix of every symbol of a Chinese word except the first, as in WordPiece.
MARK = "##"
_HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
#: A Chinese character, or a run of letters and digits of other scripts, or any other sign.
_PARTS = re.compile(f"[{_HAN}]|[^\\W_{_HAN}]+|\\S")
_BESIDE_HAN = re.compile(f"(?<=[{_HAN}]) | (?=[{_HAN}])")
#: A symbol with the mark of some kind of subwords.
_MARKED = re.compile(f".+@@$|\u2581|{MARK}.")
#: For each byte-level kind, the symbols of its bytes.  They do not depend on the training text, so
#: a model can read any text.
BYTES: Dict[str, Dict[int, str]] = {
    "text8": {ord(" "): "_", **{byte: chr(byte) for byte in b"abcdefghijklmnopqrstuvwxyz"}},
    "enwik8": {b: chr(b) if 0x21 <= b <= 0x7E else f"<{b:02X}>" for b in range(256)},
}


class Subwords(NamedTuple):
    """A way to split text."""

    split: Split  # splits a line of words into symbols
    join: Join  # joins symbols into words, on one line
    mask: str = "<mask>"  # how the symbol ``<mask>`` is written in text
    makes: Callable[[str], bool] = lambda symbol: True  # whether splitting can yield a symbol


def _none(path: Optional[str]) -> Subwords:
    return Subwords(str.split, " ".join, makes=lambda symbol: not _MARKED.match(symbol))


def _merges(path: Optional[str]) -> Any:
    module, said = import_extra("subword_nmt.apply_bpe", "subwords of subword-nmt"), io.StringIO()
    try:
        with open(str(path), encoding="utf-8") as codes, contextlib.redirect_stderr(said):
            return module.BPE(codes)
    except (OSError, ValueError, SystemExit) as error:
        reason = said.getvalue().partition("\n")[0] or error  # for SystemExit, what it printed
        raise UsageError(
            f"{path}: cannot be read as merges of subword-nmt ({reason}); give the file that "
            "subword-nmt learned"
        ) from error


def _merged(merges: Any, piece: str) -> bool:
    made = merges.bpe_codes_reverse
    return len(piece) == 1 or piece in made or piece + "</w>" in made


def _subword_nmt(path: Optional[str]) -> Subwords:
    merges = _merges(path)
    return Subwords(
        lambda line: merges.process_line(line).split(),
        lambda symbols: (" ".join(symbols) + " ").replace("@@ ", "").strip(),
        makes=lambda symbol: _merged(merges, re.sub("(?<=.)@@$", "", symbol)),
    )


def in_pieces(word: str, split: Callable[[str], str]) -> List[str]:
    """The Chinese characters, signs and pieces of a word; all but the first are marked.

    Args:
        word: a word, possibly of several scripts.
        split: splits a Latin word by merges, with ``@@ `` between its pieces.
    """
    found: List[str] = []
    for part in _PARTS.findall(word):
        found += [part] if len(part) == 1 else split(part).replace("@@ ", " ").split()
    return found[:1] + [MARK + symbol for symbol in found[1:]]


def unmarked(line: str) -> str:
    """The words of a line of marked symbols, separated by spaces."""
    return line.replace(f" {MARK}", "")


def _marked(of_word: Split, makes: Callable[[str], bool]) -> Subwords:
    """Subwords of Chinese text, where all symbols of a word but the first are marked.

    Args:
        of_word: splits a word into symbols.
        makes: whether splitting can yield a symbol, given the symbol without its mark.
    """

    def join(symbols: List[str]) -> str:
        return _BESIDE_HAN.sub("", unmarked(" " + " ".join(symbols)).strip())

    return Subwords(
        lambda line: [s for word in line.split() for s in of_word(word)],
        join,
        makes=lambda symbol: makes(re.sub(f"^{MARK}(?=.)", "", symbol)),
    )


def _marked_pieces(path: Optional[str]) -> Subwords:
    merges = _merges(path)
    return _marked(
        lambda word: in_pieces(word, merges.process_line), lambda piece: _merged(merges, piece)
    )


def _marked_words(path: Optional[str]) -> Subwords:
    """Subwords that keep the words in a list, and split all other words into characters."""
    from fairseq_posenc.serving.transformers_tokenizer import RESERVED

    known = set()
    for number, word in enumerate(read_lines(str(path)), 1):
        differs = len(word) > 1 and not word.startswith(MARK) and word not in RESERVED
        if not differs or len(word.split()) != 1:
            raise UsageError(
                f"{path}: line {number}: {word!r} is no word; give the list of words that "
                "the model was trained with"
            )
        known.add(word)
    return _marked(
        lambda word: [word] if word in known else [word[0], *(MARK + c for c in word[1:])],
        lambda piece: len(piece) == 1 or piece in known,
    )


def _sentencepiece(path: Optional[str]) -> Subwords:
    module = import_extra("sentencepiece", "subwords of sentencepiece")
    try:
        pieces = module.SentencePieceProcessor(model_file=path)
    except (OSError, RuntimeError) as error:
        raise UsageError(
            f"{path}: cannot be read as a model of SentencePiece ({error}); give the file that "
            "SentencePiece learned"
        ) from error
    return Subwords(
        lambda line: pieces.encode(line, out_type=str),
        pieces.decode_pieces,
        makes=lambda symbol: len(symbol) == 1 or not pieces.is_unknown(pieces[symbol]),
    )


def _transformers(path: Optional[str]) -> Subwords:
    from fairseq_posenc.serving import transformers_tokenizer

    return Subwords(*transformers_tokenizer.load(str(path)))


def _bytes(symbols: Dict[int, str]) -> Subwords:
    """Subwords that are bytes; in text8, only a to z and the space have symbols."""
    numbers = {symbol: byte for byte, symbol in symbols.items()}

    def split(line: str) -> List[str]:
        return [symbols.get(byte, chr(byte)) for byte in line.encode("utf-8")]

    def join(found: List[str]) -> str:
        known = bytes(numbers[symbol] for symbol in found if symbol in numbers)
        return known.decode("utf-8", "replace")

    return Subwords(split, join, makes=numbers.__contains__)


#: Functions that make each kind of subwords from the path of the subword file, or from None.
KINDS: Dict[str, Callable[[Optional[str]], Subwords]] = {
    "subword-nmt": _subword_nmt,
    "sentencepiece": _sentencepiece,
    "marked-pieces": _marked_pieces,
    "marked-words": _marked_words,
    "transformers": _transformers,
    "text8": lambda path: _bytes(BYTES["text8"]),
    "enwik8": lambda path: _bytes(BYTES["enwik8"]),
    "none": _none,
}
#: The name of each kind's file in a model folder; None for kinds without a file.
SUBWORD_FILES: Dict[str, Optional[str]] = {
    **dict.fromkeys(KINDS),
    **dict.fromkeys(("subword-nmt", "marked-pieces"), "codes"),
    "sentencepiece": "sentencepiece.model",
    "marked-words": "words.txt",
    "transformers": "tokenizer",
}
SUBWORDS = tuple(SUBWORD_FILES)
WITH_FILE = [kind for kind, file in SUBWORD_FILES.items() if file is not None]
#: The kinds that split a line as it is, with all its white space.
RAW = ("transformers", "text8", "enwik8")


def check_subword_file(kind: str, file: Optional[str]) -> None:
    """Refuse subwords of a *kind* without the *file* that they need, or with one they ignore."""
    if (kind in WITH_FILE) != (file is not None):
        raise UsageError(
            f"--subwords {kind}: {', '.join(WITH_FILE)} need --subword-file, and no others accept "
            "it; add or drop --subword-file"
        )
