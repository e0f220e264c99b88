"""Replacing a function of fairseq once, however often it is asked for."""

import functools
import sys
from typing import Any, Callable

_MARK = "_fairseq_posenc_original"


def wrap(owner: Any, name: str, make: Callable[[Callable], Callable]) -> None:
    """Replace ``owner.name`` by ``make(original)``, unless that was done before.

    Modules of fairseq that had imported the original by name get the replacement too.

    Args:
        owner: the module or class that holds the function.
        name: its name there.
        make: takes the original and returns what to put in its place.
    """
    original = getattr(owner, name)
    if hasattr(original, _MARK):
        return
    replacement = functools.wraps(original)(make(original))
    setattr(replacement, _MARK, original)
    setattr(owner, name, replacement)
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").startswith("fairseq"):
            if vars(module).get(name) is original:
                setattr(module, name, replacement)
