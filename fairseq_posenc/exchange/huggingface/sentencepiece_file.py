"""A model of SentencePiece, read and written: its pieces, and how it normalises text.

The file is a message of Protocol Buffers; this module reads the needed parts itself, so that no
further package is needed.
"""

import struct
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Tuple

from fairseq_posenc.basics.errors import UsageError

#: Types of models and of pieces, by their numbers in the file.
UNIGRAM, BPE = 1, 2
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
#: Numbers of the fields of the messages.
_PIECES, _TRAINER, _NORMALIZER = 1, 2, 3
_TYPE, _SUFFIX, _BYTES = 3, 24, 35
_NAME, _CHARSMAP, _PREFIX, _EXTRA, _ESCAPE = range(1, 6)


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
    plain: bool  # whether spaces become part of the pieces behind them
    bytes: bool  # whether unknown characters become bytes


def read_pieces(path: str) -> Pieces:
    """Read a model of SentencePiece, or refuse a file that is none."""
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


def with_pieces(path: str, pieces: Iterable[Piece]) -> bytes:
    """The content of a model with other *pieces*, whose other settings stay the same."""
    with open(path, "rb") as file:
        rest = [field for field in _fields(file.read()) if field[0] != _PIECES]
    entries = []
    for symbol, score, kind in pieces:
        piece = _message([(1, symbol.encode("utf-8")), (2, score), (3, kind)])
        entries.append((_PIECES, piece))
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
    """A whole number of any size, and the place behind it."""
    value = shift = 0
    while True:
        byte = content[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
