"""Import of models from other toolkits, and export to other toolkits and inference engines.

:mod:`~fairseq_posenc.exchange.formats` has the registry and the interfaces.  The first
access to a name of this package registers the formats that come with the plug-in.
"""

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairseq_posenc.exchange.exporter import *  # noqa: F403
    from fairseq_posenc.exchange.formats import *  # noqa: F403
    from fairseq_posenc.exchange.native import *  # noqa: F403
    from fairseq_posenc.exchange.reader import *  # noqa: F403
    from fairseq_posenc.exchange.transfer import *  # noqa: F403

_CLASSES = ("language_models", "masked", "modernbert", "released", "remote_code", "roformer")
_SHIPPED = (
    *("onnx", "tupe", "ctranslate2.export", "huggingface.translation"),
    *(f"huggingface.{name}" for name in _CLASSES),
)
#: The modules that define the public names of this package.
_INTERFACES = ("formats", "exporter", "transfer", "native", "reader")


def __getattr__(name: str) -> Any:  # lazy, as some modules here need no format
    if not name.startswith("_") and importlib.util.find_spec(f"{__name__}.{name}") is None:
        for module in _SHIPPED:
            importlib.import_module(f"{__name__}.{module}")
        for module in _INTERFACES:
            found = vars(importlib.import_module(f"{__name__}.{module}"))
            if name in found:
                return found[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
