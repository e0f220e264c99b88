"""Models recorded as a graph, by ``torch.onnx.export`` or ``torch.compile``.

A graph is recorded on one input and runs on others.  While it is recorded, no branch may depend on
values, and complex numbers are avoided, as neither ONNX nor inductor has operators for them.
"""

from typing import Any

import torch
from torch import Tensor

_is_compiling: Any = getattr(getattr(torch, "compiler", None), "is_compiling", lambda: False)


def is_recording() -> bool:
    """True while operations are recorded, by ``torch.jit.trace`` or ``torch.compile``."""
    return torch.jit.is_tracing() or _is_compiling()


def any_true(condition: Tensor) -> bool:
    """Whether a case has to be handled: an entry of *condition* is True, or a graph is recorded.

    >>> any_true(torch.tensor([False, False]))
    False

    Args:
        condition: booleans of any shape.
    """
    return is_recording() or bool(condition.any())
