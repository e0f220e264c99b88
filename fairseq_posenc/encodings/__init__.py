"""Position encodings, one per file (fairseq's two tables share a file), and their registry.

To add an encoding to this package, add a file to this folder.  To add one of your own, use
:func:`register_encoding` in a file in your ``--user-dir``.
"""

# ruff: noqa: F401 - names for other folders, and imports that register encodings

import importlib
import pkgutil

from fairseq_posenc.encodings.base import Places, Stack
from fairseq_posenc.encodings.composition import (
    PositionEncoding,
    build_encodings,
    check_encodings,
    is_relative,
)
from fairseq_posenc.encodings.position_ids import PositionRule, register_positions
from fairseq_posenc.encodings.registry import (
    ENCODINGS,
    Encoding,
    Pattern,
    all_encodings,
    encoding_flags,
    parse,
    parse_encodings,
    register_encoding,
)

for _file in pkgutil.iter_modules(__path__):  # importing an encoding registers it
    importlib.import_module(f"{__name__}.{_file.name}")
