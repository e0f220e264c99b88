"""Idempotent replacement of functions of fairseq."""

import functools
import sys
from typing import Any, Callable

Wrapper = Callable[[Callable[..., Any]], Callable[..., Any]]

_MARK = "_fairseq_posenc_original"


def wrap(owner: Any, name: str, make: Wrapper) -> None:
    """Replace ``owner.name`` by ``make(original)``, unless it is already replaced.

    Fairseq modules that have imported the original by name also get the replacement.

    Args:
        owner: the module or class that holds the function.
        name: its name there.
        make: takes the original and returns the replacement, or the original to leave it as it is.
    """
    original = getattr(owner, name)
    if hasattr(original, _MARK):
        return
    replacement = make(original)
    if replacement is original:
        return
    functools.update_wrapper(replacement, original)
    setattr(replacement, _MARK, original)
    setattr(owner, name, replacement)
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").startswith("fairseq"):
            if vars(module).get(name) is original:
                setattr(module, name, replacement)
