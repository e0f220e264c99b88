"""The rotation of :mod:`.rotary` in real numbers, where complex ones have no operators.

RoFormer Eq. 26 by pairs: (a, b) at an angle φ becomes
(a cos φ - b sin φ, a sin φ + b cos φ).
"""

import torch
from torch import Tensor


def real_table(angles: Tensor, length: float) -> Tensor:
    """Cosines and sines of *angles*, times *length*.

    Args:
        angles: (…, d/2), float64.
        length: of the rotated vectors, relative to those before.

    Returns:
        (…, d), all cosines before all sines, float32.
    """
    return (torch.cat((angles.cos(), angles.sin()), dim=-1) * length).float()


def rotate_interleaved(x: Tensor, table: Tensor) -> Tensor:
    """Rotate the pairs of channels (1, 2), (3, 4), …

    Args:
        x: (B, T, H, d).
        table: (1|B, T, 1, d), from :func:`real_table`.

    Returns:
        shaped like *x*.
    """
    cos, sin = table.chunk(2, dim=-1)
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, a * sin + b * cos), dim=-1).flatten(-2)


def rotate_half(x: Tensor, table: Tensor) -> Tensor:
    """Rotate the pairs of channels (i, i + d/2); arguments as for :func:`rotate_interleaved`."""
    cos, sin = table.chunk(2, dim=-1)
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)
