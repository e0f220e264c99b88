"""Formats of other toolkits and engines: importing to checkpoints of this plug-in, and exporting.

:mod:`~fairseq_posenc.exchange.formats` has the registry and the interfaces.  The first use of a
name of this package registers the formats that are shipped.
"""

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairseq_posenc.exchange.shipped import *  # noqa: F403


def __getattr__(name: str) -> Any:  # on use: a part of the package does without all formats
    if name.startswith("_") or importlib.util.find_spec(f"{__name__}.{name}"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.shipped"), name)
