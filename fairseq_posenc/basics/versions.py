"""Capabilities of the installed PyTorch, as constants computed at import."""

import re
from typing import Tuple

import torch
import torch.nn.functional as F


def parse_version(text: str) -> Tuple[int, int]:
    """Major and minor number of a version.

    >>> parse_version("2.13.0+cpu")
    (2, 13)
    """
    match = re.match(r"(\d+)\.(\d+)", text)
    if match is None:
        raise ValueError(f"not a version: {text!r}")
    return int(match.group(1)), int(match.group(2))


TORCH_VERSION = parse_version(torch.__version__)

#: ``torch.nn.functional.scaled_dot_product_attention`` exists (PyTorch 2.0).
HAS_SDPA = hasattr(F, "scaled_dot_product_attention")

#: The fused kernel takes ``scale=`` (PyTorch 2.1); before that, queries are scaled instead.
SDPA_HAS_SCALE = HAS_SDPA and TORCH_VERSION >= (2, 1)

#: ``torch.nn.functional.rms_norm`` is one kernel, which computes in float32 (PyTorch 2.8).
HAS_FUSED_RMS_NORM = hasattr(torch.ops.aten, "_fused_rms_norm")

#: The fused kernel returns zeros for fully masked rows (PyTorch 2.5), and NaN before that.
SDPA_SAFE_MASKS = HAS_SDPA and TORCH_VERSION >= (2, 5)

#: The fused kernel takes fewer key heads than query heads, with ``enable_gqa=`` (PyTorch 2.5).
SDPA_HAS_GROUPS = HAS_SDPA and TORCH_VERSION >= (2, 5)


#: A function that returns True while ``torch.compile`` is tracing (PyTorch 2.1).
is_compiling = getattr(getattr(torch, "compiler", None), "is_compiling", lambda: False)


def in_graph() -> bool:
    """True while PyTorch traces or compiles a graph."""
    return torch.jit.is_tracing() or is_compiling()
