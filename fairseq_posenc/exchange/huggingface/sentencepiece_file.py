"""A model of SentencePiece, read and written, and as the model of a tokenizer.json.

The file is a message of Protocol Buffers; this module reads the needed parts itself, so that no
further package is needed.
"""

import struct
from typing import Any, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Tuple

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.exchange.reader import LEADING

#: Types of models and of pieces, by their numbers in the file.
UNIGRAM, BPE = 1, 2
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
#: Numbers of the fields of the messages.
_PIECES, _TRAINER, _NORMALIZER = 1, 2, 3
_TYPE, _SUFFIX, _BYTES = 3, 24, 35
_NAME, _CHARSMAP, _PREFIX, _EXTRA, _ESCAPE = range(1, 6)
#: How much less probable than the least probable piece an unknown character is.
_RARER = 10.0


class Piece(NamedTuple):
    """A piece, with its score and its type."""

    symbol: str
    score: float
    kind: int


class Pieces(NamedTuple):
    """A model of SentencePiece."""

    kind: int  # :data:`UNIGRAM`, :data:`BPE` or another
    pieces: List[Piece]  # by number
    charsmap: bytes  # the compiled rules of the normalisation, empty if there are none
    composed: bool  # whether these rules are those of NFKC, with more or without
    prefix: bool  # whether a space is put before the text
    squeezed: bool  # whether spaces at the ends and repeated ones are removed
    plain: bool  # whether spaces become part of the pieces after them
    bytes: bool  # whether unknown characters become bytes


def read_pieces(path: str) -> Pieces:
    """Read a model of SentencePiece, or refuse any other file."""
    try:
        with open(path, "rb") as file:
            content = file.read()
        pieces, trainer, normalizer = [], {}, {}
        for number, value in _fields(content):
            if number == _PIECES:
                piece = dict(_fields(value))
                score = struct.unpack("<f", piece[2])[0] if 2 in piece else 0.0
                pieces.append(Piece(piece[1].decode("utf-8"), score, piece.get(3, NORMAL)))
            elif number == _TRAINER:
                trainer = dict(_fields(value))
            elif number == _NORMALIZER:
                normalizer = dict(_fields(value))
        if not pieces:
            raise ValueError("it has no pieces")
    except (OSError, ValueError, KeyError, IndexError, AttributeError, struct.error) as error:
        raise UsageError(f"{path}: cannot be read as a model of SentencePiece ({error})") from error
    get: Dict[int, Any] = normalizer
    return Pieces(
        trainer.get(_TYPE, UNIGRAM),
        pieces,
        get.get(_CHARSMAP, b""),
        b"nfkc" in get.get(_NAME, b""),
        bool(get.get(_PREFIX, 1)),
        bool(get.get(_EXTRA, 1)),
        bool(get.get(_ESCAPE, 1)) and not trainer.get(_SUFFIX, 0),
        bool(trainer.get(_BYTES, 0)),
    )


def unigram(model: Pieces, numbers: Mapping[str, int]) -> Dict[str, Any]:
    """The entry ``model`` of a tokenizer.json, given the numbers of symbols, in their order."""
    scores = {piece.symbol: piece.score for piece in model.pieces if piece.kind in (NORMAL, BYTE)}
    least = min(scores.values(), default=0.0)
    scores.update(dict.fromkeys(LEADING, least))
    # a symbol that is no piece was an unknown character in the training data
    entries = [[symbol, scores.get(symbol, least - _RARER)] for symbol in numbers]
    unknown = numbers["<unk>"]
    return {"type": "Unigram", "unk_id": unknown, "vocab": entries, "byte_fallback": model.bytes}


def merged(model: Pieces, numbers: Mapping[str, int]) -> Dict[str, Any]:
    """The same for a BPE model; every pair of pieces that makes a piece is a merge."""
    scores = {piece.symbol: piece.score for piece in model.pieces if piece.kind == NORMAL}
    merges: List[Tuple[float, int, int, str]] = []
    for symbol, score in scores.items():
        for at in range(1, len(symbol)):
            left, right = symbol[:at], symbol[at:]
            if left in scores and right in scores:
                merges.append((-score, numbers[left], numbers[right], f"{left} {right}"))
    return {
        "type": "BPE",
        "vocab": numbers,
        "merges": [pair for *_, pair in sorted(merges)],
        "unk_token": "<unk>",
        "fuse_unk": True,
        "byte_fallback": model.bytes,
        **dict.fromkeys(("dropout", "continuing_subword_prefix", "end_of_word_suffix")),
    }


def renumbered(path: str, model: Pieces, numbers: Mapping[str, int]) -> bytes:
    """The content of a SentencePiece file with the symbols of *numbers*, in the order there.

    Programs such as llama.cpp read it, and merge its pieces as in BPE, whatever its type.
    """
    with open(path, "rb") as file:
        rest = [field for field in _fields(file.read()) if field[0] != _PIECES]
    own = {piece.symbol: piece for piece in model.pieces if piece.kind in (NORMAL, BYTE)}
    own.update({name: Piece(name, 0.0, CONTROL) for name in LEADING})
    own["<unk>"] = Piece("<unk>", 0.0, UNKNOWN)
    entries = []
    for symbol in numbers:  # others were unknown in training, alone or in runs
        piece = own.get(symbol) or Piece(symbol, 0.0, NORMAL if len(symbol) == 1 else UNUSED)
        content = [(1, symbol.encode("utf-8")), (2, piece.score), (3, piece.kind)]
        entries.append((_PIECES, _message(content)))
    return _message([*entries, *rest])


def _message(fields: Iterable[Tuple[int, Any]]) -> bytes:
    """A message with *fields*: whole numbers, numbers of 4 bytes, and bytes."""
    parts = bytearray()
    for number, value in fields:
        if isinstance(value, int):
            parts += _as_varint(number << 3) + _as_varint(value)
        elif isinstance(value, float):
            parts += _as_varint(number << 3 | 5) + struct.pack("<f", value)
        else:
            parts += _as_varint(number << 3 | 2) + _as_varint(len(value)) + value
    return bytes(parts)


def _as_varint(value: int) -> bytes:
    """The bytes of a whole number of any size."""
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def _fields(content: bytes) -> Iterator[Tuple[int, Any]]:
    """The fields of a message: numbers as they are, everything else as bytes."""
    at = 0
    while at < len(content):
        key, at = _varint(content, at)
        number, form = key >> 3, key & 7
        if form == 0:
            value, at = _varint(content, at)
            yield number, value
            continue
        if form == 2:
            size, at = _varint(content, at)
        elif form in (1, 5):
            size = 8 if form == 1 else 4
        else:
            raise ValueError(f"a field of type {form}")
        if at + size > len(content):
            raise ValueError("it ends early")
        yield number, content[at : at + size]
        at += size


def _varint(content: bytes, at: int) -> Tuple[int, int]:
    """A whole number of any size, and the index after its bytes."""
    value = shift = 0
    while True:
        byte = content[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
