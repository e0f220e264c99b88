"""Position encodings: one file each, and the registry that names them."""

import dataclasses
from typing import Any, Dict, List

from fairseq_posenc.encodings.alibi import ALIBI
from fairseq_posenc.encodings.base import Encoding, Stack
from fairseq_posenc.encodings.composition import PositionEncoding
from fairseq_posenc.encodings.deberta import DEBERTA
from fairseq_posenc.encodings.learned import LEARNED
from fairseq_posenc.encodings.none import NONE
from fairseq_posenc.encodings.rotary import ROTARY
from fairseq_posenc.encodings.separate import SEPARATE
from fairseq_posenc.encodings.shared import UntieClsFlags
from fairseq_posenc.encodings.shaw import SHAW
from fairseq_posenc.encodings.sinusoidal import SINUSOIDAL
from fairseq_posenc.encodings.t5 import T5
from fairseq_posenc.encodings.transformer_xl import TRANSFORMER_XL
from fairseq_posenc.encodings.tupe import TUPE
from fairseq_posenc.errors import UsageError

# A new encoding is one file in this folder and one entry here.
ENCODINGS: Dict[str, Encoding] = {
    encoding.name: encoding
    for encoding in (
        NONE,
        SINUSOIDAL,
        LEARNED,
        ROTARY,
        ALIBI,
        T5,
        TUPE,
        SEPARATE,
        SHAW,
        TRANSFORMER_XL,
        DEBERTA,
    )
}


def encoding_flags() -> List["dataclasses.Field[Any]"]:
    """The flags of all registered encodings, with defaults and help texts in their metadata."""
    own = [encoding.flags for encoding in ENCODINGS.values() if encoding.flags]
    return [flag for flags in (*own, UntieClsFlags) for flag in dataclasses.fields(flags)]


def parse_encodings(value: str) -> List[Encoding]:
    """The encodings named by ``--position-encoding``, joined by ``+``.

    Args:
        value: for example ``rotary`` or ``learned+rotary``.

    Returns:
        the registered encodings, in the order given.

    Raises:
        UsageError: if a name is unknown, repeated, or ``none`` is combined with others.
    """
    names = [name.strip() for name in value.split("+")]
    for name in names:
        if name not in ENCODINGS:
            known = ", ".join(sorted(ENCODINGS))
            raise UsageError(
                f"--position-encoding {value}: unknown encoding {name!r}; known: {known}; "
                "several are joined with +"
            )
    if len(set(names)) < len(names):
        raise UsageError(f"--position-encoding {value}: an encoding is named twice")
    if "none" in names and len(names) > 1:
        raise UsageError(f"--position-encoding {value}: none cannot be combined with others")
    return [ENCODINGS[name] for name in names]


def build_encoding(options: Any, stack: Stack) -> PositionEncoding:
    """The encodings that *options*.position_encoding names, composed for *stack*."""
    return PositionEncoding(parse_encodings(options.position_encoding), options, stack)


__all__ = [
    "ENCODINGS",
    "Encoding",
    "PositionEncoding",
    "Stack",
    "build_encoding",
    "encoding_flags",
    "parse_encodings",
]
