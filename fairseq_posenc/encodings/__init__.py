"""Position encodings, one file each (the tables of fairseq together), and their registry.

A new encoding in this package is one file in this folder and one line below.  An encoding of your
own is a file in your ``--user-dir`` that uses :func:`register_encoding`.
"""

from fairseq_posenc.encodings import (  # noqa: F401 - importing an encoding registers it
    alibi,
    bert_ad,
    cope,
    dape,
    deberta,
    documents,
    fire,
    fox,
    input_tables,
    kerple,
    nezha,
    rotary,
    sandwich,
    shaw,
    t5,
    transformer_xl,
    tupe,
    xpos,
)
from fairseq_posenc.encodings.base import Encoding, Places, Stack
from fairseq_posenc.encodings.composition import (
    PositionEncoding,
    build_encodings,
    check_encodings,
    is_relative,
)
from fairseq_posenc.encodings.position_ids import PositionRule, register_positions
from fairseq_posenc.encodings.registry import (
    ENCODINGS,
    Pattern,
    all_encodings,
    encoding_flags,
    parse,
    parse_encodings,
    parse_pattern,
    register_encoding,
)

__all__ = [
    "ENCODINGS",
    "Encoding",
    "Pattern",
    "Places",
    "PositionEncoding",
    "PositionRule",
    "Stack",
    "all_encodings",
    "build_encodings",
    "check_encodings",
    "encoding_flags",
    "is_relative",
    "parse",
    "parse_encodings",
    "parse_pattern",
    "register_encoding",
    "register_positions",
]
