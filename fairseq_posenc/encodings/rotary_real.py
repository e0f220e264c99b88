"""The rotation of :mod:`.rotary` in real numbers, where complex ones have no operators.

RoFormer Eq. 26 by pairs: (a, b) at an angle φ becomes
(a cos φ - b sin φ, a sin φ + b cos φ).
"""

from typing import Sequence, Tuple

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


def multiply_real(tensors: Sequence[Tensor], table: Tensor, pairing: str) -> Tuple[Tensor, ...]:
    """The pairs of *tensors* rotated by *table*, computed in float32 or wider.

    Args:
        tensors: (B, T, H, d) each.
        table: (1|B, T, 1, d), from :func:`real_table`.
        pairing: interleaved, (1, 2), (3, 4), …; or half, (i, i + d/2).

    Returns:
        shaped like *tensors*, in their types.
    """
    cos, sin = table.chunk(2, dim=-1)
    found = []
    for x in tensors:
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        a, b = wide.chunk(2, dim=-1) if pairing == "half" else (wide[..., 0::2], wide[..., 1::2])
        turned = (a * cos - b * sin, a * sin + b * cos)
        joined = torch.cat(turned, -1) if pairing == "half" else torch.stack(turned, -1).flatten(-2)
        found.append(joined.to(x.dtype))
    return tuple(found)
