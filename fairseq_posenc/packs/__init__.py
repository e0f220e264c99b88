"""Parts of the plug-in that it works without: a folder each, which registers what it has.

A folder can be deleted, with its tests; nothing outside of it imports it or names what it
registers.
"""

import importlib
import pkgutil


def load(part: str = "") -> None:
    """Import every pack, which registers what it has.

    Args:
        part: import this module of those that have it instead, such as ``exchange`` for formats.
    """
    for pack in pkgutil.iter_modules(__path__, f"{__name__}."):
        path = importlib.import_module(pack.name).__path__
        if part and any(module.name == part for module in pkgutil.iter_modules(path)):
            importlib.import_module(f"{pack.name}.{part}")
