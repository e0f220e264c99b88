"""What the installed PyTorch can do, as constants computed once at import."""

import re
from typing import Tuple

import torch
import torch.nn.functional as F


def parse_version(text: str) -> Tuple[int, int]:
    """Return ``(major, minor)`` of a version such as ``2.13.0+cpu`` or ``1.13.0a0``.

    Raises:
        ValueError: when the text does not start with two numbers.
    """
    match = re.match(r"(\d+)\.(\d+)", text)
    if match is None:
        raise ValueError(f"not a version: {text!r}")
    return int(match.group(1)), int(match.group(2))


TORCH_VERSION = parse_version(torch.__version__)

#: ``torch.nn.functional.scaled_dot_product_attention`` exists (PyTorch 2.0).
HAS_SDPA = hasattr(F, "scaled_dot_product_attention")

#: It takes ``scale=`` (PyTorch 2.1); before, queries must be scaled by the caller.
SDPA_HAS_SCALE = HAS_SDPA and TORCH_VERSION >= (2, 1)

#: Rows whose keys are all masked come back as zeros; earlier versions give NaN
#: (PyTorch 2.5).
SDPA_SAFE_MASKS = HAS_SDPA and TORCH_VERSION >= (2, 5)
