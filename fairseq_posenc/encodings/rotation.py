"""Products of pairs of channels with the numbers of a table, for rotary positions.

RoFormer, arXiv 2104.09864.  A pair of channels is one complex number, multiplied by e^{i φ}
(Eq. 4).  Exported and compiled graphs, where complex numbers have no operators, have the same in
real ones (Eq. 26): (a, b) at an angle φ becomes (a cos φ - b sin φ, a sin φ + b cos φ).
"""

from typing import Any, Sequence, Tuple

import torch
from torch import Tensor

from fairseq_posenc.flags.options import Layer

PAIRINGS = ("interleaved", "half")


def complex_table(angles: Tensor, length: float) -> Tensor:
    """e^{i φ} of *angles*, times *length*, complex64.

    Args:
        angles: (…, d/2), float64.
        length: factor on the lengths of the rotated vectors.
    """
    return torch.polar(torch.full_like(angles, length), angles).to(torch.complex64)


def real_table(angles: Tensor, length: float) -> Tensor:
    """Cosines and sines of *angles*, times *length*.

    Args:
        angles: (…, d/2), float64.
        length: factor on the lengths of the rotated vectors.

    Returns:
        (…, d), all cosines before all sines, float32.
    """
    return (torch.cat((angles.cos(), angles.sin()), dim=-1) * length).float()


def pairs_of(x: Tensor, pairing: str) -> Tensor:
    """A view of (…, d) as pairs (…, d/2, 2).

    >>> [pairs_of(torch.arange(4), pairing).tolist() for pairing in PAIRINGS]
    [[[0, 1], [2, 3]], [[0, 2], [1, 3]]]

    Args:
        x: channels next to each other in memory.
        pairing: interleaved, (1, 2), (3, 4), …; or half, (i, i + d/2).
    """
    if pairing == "half":
        return x.view(*x.shape[:-1], 2, -1).transpose(-1, -2)
    return x.view(*x.shape[:-1], -1, 2)


def multiply(tensors: Sequence[Tensor], table: Tensor, pairing: str) -> Tuple[Tensor, ...]:
    """The products of the pairs of *tensors* with *table*, computed in float32 or wider.

    Args:
        tensors: (B, T, H, d) each, of one type.
        table: (1|B, T, 1, d/2), complex.
        pairing: one of :data:`PAIRINGS`.

    Returns:
        shaped like *tensors*, in their type.
    """
    first = tensors[0]
    wide = torch.promote_types(first.dtype, torch.float32)
    if wide is first.dtype and pairing == "interleaved":  # multiplied where they are
        products = []
        for x in tensors:
            b, t, h, one = x.stride()
            offset: Any = x.storage_offset()
            if one != 1 or (b | t | h | offset) % 2:  # no complex numbers in memory
                x = x.contiguous()
            product = torch.view_as_complex(x.view(*x.shape[:-1], -1, 2)) * table
            products.append(torch.view_as_real(product).flatten(-2).type_as(x))
        return tuple(products)
    # few and large operations: on a GPU the host takes longer than the device for small ones
    numbers = torch.stack([pairs_of(x, pairing) for x in tensors]).to(wide)
    torch.view_as_complex(numbers).mul_(table)
    numbers = numbers.transpose(-1, -2) if pairing == "half" else numbers
    return numbers.to(first.dtype, memory_format=torch.contiguous_format).flatten(-2).unbind()


class Multiply(torch.autograd.Function):
    """:func:`multiply` with its gradient, the product with the conjugates.

    Autograd would conjugate the table for queries and keys, and cast both apart in half precision.
    """

    @staticmethod
    def forward(ctx: Layer, table: Tensor, pairing: str, *tensors: Tensor) -> Tuple[Tensor, ...]:
        """Arguments as for :func:`multiply`."""
        ctx.pairing = pairing
        if any(ctx.needs_input_grad):
            ctx.save_for_backward(table.conj().resolve_conj())
        return multiply(tensors, table, pairing)

    @staticmethod
    def backward(ctx: Layer, *gradients: Tensor) -> Tuple[Any, ...]:
        """Products with the conjugates."""
        return (None, None, *multiply(gradients, ctx.saved_tensors[0], ctx.pairing))


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
