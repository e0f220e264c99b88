"""The rotation of queries and keys as one kernel of a GPU, written in Triton.

Triton comes with PyTorch for CUDA; this file cannot be imported without Triton.  The real form of
RoFormer Eq. 26 (34 in arXiv 2104.09864) has two terms for every channel,

    out_c = x_c cos mθ ± x_c' sin mθ,

where c' is the other channel of the pair, and the sign is minus for the first of the two.  A
program of the GPU reads the channels of one token in order and writes all of them, unrotated ones
unchanged.  The gradient is the same with -sin mθ.
"""

from functools import lru_cache
from typing import Any, Sequence, Tuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from fairseq_posenc.flags.options import Layer

#: Most channels of a program, over all its heads.
MOST_CHANNELS = 2048
#: Channels for each warp of 32 threads: 16 a thread, in two steps of 16 bytes.
CHANNELS_OF_WARP = 512


@triton.jit
def _rotate_token(
    x,
    out,
    heads,
    step_b,
    step_t,
    step_h,
    step_c,
    table,
    direction,
    batch,
    time,
    row,
    SIZE: tl.constexpr,
    ROTATED: tl.constexpr,
    HALF: tl.constexpr,
    HEADS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """Rotate HEADS heads of one token, whose cosines and sines begin at *table*."""
    head = (tl.program_id(1) * HEADS + tl.arange(0, HEADS)[:, None]).to(tl.int64)
    channel = tl.arange(0, CHANNELS)[None, :]
    in_pair = channel < ROTATED
    if HALF:
        is_first = channel < ROTATED // 2
        other = tl.where(is_first, channel + ROTATED // 2, channel - ROTATED // 2)
        pair = tl.where(is_first, channel, other)
    else:
        is_first = channel % 2 == 0
        other = channel ^ 1
        pair = channel // 2
    inside = (head < heads) & (channel < SIZE)
    x += batch * step_b + time * step_t + head * step_h
    stored = tl.load(x + channel * step_c, mask=inside)
    value = stored.to(tl.float32)
    across = tl.load(x + other * step_c, mask=inside & in_pair).to(tl.float32)
    cos = tl.load(table + 2 * pair, mask=in_pair)
    sin = tl.load(table + 2 * pair + 1, mask=in_pair) * direction
    rotated = value * cos + across * tl.where(is_first, -sin, sin)
    result = tl.where(in_pair, rotated.to(stored.dtype), stored)
    tl.store(out + (row * heads + head) * SIZE + channel, result, mask=inside)


@triton.jit(do_not_specialize=["length"])  # one compilation for all lengths
def _rotate_tokens(
    first,
    second,
    first_out,
    second_out,
    table,
    direction,
    length,
    first_heads,
    second_heads,
    first_b,
    first_t,
    first_h,
    first_c,
    second_b,
    second_t,
    second_h,
    second_c,
    table_b,
    table_t,
    SIZE: tl.constexpr,
    ROTATED: tl.constexpr,
    HALF: tl.constexpr,
    HEADS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """Rotate the token of program axis 0, in the tensor of axis 2; axis 1 has groups of heads."""
    row = tl.program_id(0).to(tl.int64)
    batch, time = row // length, row % length
    table += batch * table_b + time * table_t
    if tl.program_id(2) == 0:
        _rotate_token(
            first, first_out, first_heads, first_b, first_t, first_h, first_c,
            table, direction, batch, time, row, SIZE, ROTATED, HALF, HEADS, CHANNELS,
        )  # fmt: skip
    else:
        _rotate_token(
            second, second_out, second_heads, second_b, second_t, second_h, second_c,
            table, direction, batch, time, row, SIZE, ROTATED, HALF, HEADS, CHANNELS,
        )  # fmt: skip


@lru_cache(maxsize=None)
def _blocks(heads: int, size: int) -> Tuple[int, int, int, int]:
    """Groups of heads, then heads, channels and warps of a program; powers of two but the first."""
    channels = 1 << (size - 1).bit_length()
    together = min(1 << (heads - 1).bit_length(), max(1, MOST_CHANNELS // channels))
    warps = min(max(1, together * channels // CHANNELS_OF_WARP), 8)
    return -(-heads // together), together, channels, warps


def launch(
    tensors: Sequence[Tensor], table: Tensor, pairing: str, dim: int, direction: float
) -> Tuple[Tensor, ...]:
    """Rotate the first *dim* channels of the heads of *tensors* by *table*, and copy the others.

    Products are computed in float32.

    Args:
        tensors: one or two (B, T, H, D) of one floating-point type, which differ in H at most, in
            any layout of memory.
        table: (1|B, T, 1, dim/2), complex64.
        pairing: interleaved, (1, 2), (3, 4), …; or half, (i, i + dim/2).
        dim: the number of channels that are rotated, even.
        direction: 1.0, or -1.0 for the conjugates of the table.

    Returns:
        shaped like *tensors*, in their type, contiguous.
    """
    first, second = tensors[0], tensors[-1]
    results = tuple(x.new_empty(x.shape) for x in tensors)
    batch, length, heads, size = first.shape
    groups, *blocks, warps = _blocks(max(heads, second.size(2)), size)
    numbers = torch.view_as_real(table if table.stride(-1) == 1 else table.contiguous())
    of_table = [0 if numbers.size(i) == 1 else numbers.stride(i) for i in (0, 1)]
    if not first.numel():
        return results
    with torch.cuda.device_of(first):
        _rotate_tokens[(batch * length, groups, len(tensors))](
            first, second, results[0], results[-1], numbers, direction,
            length, heads, second.size(2), *first.stride(), *second.stride(), *of_table,
            size, dim, pairing == "half", *blocks, num_warps=warps, enable_fp_fusion=False,
        )  # fmt: skip
    return results


class _Rotation(torch.autograd.Function):
    """:func:`launch` with its gradient, the product with the conjugates."""

    @staticmethod
    def forward(
        ctx: Layer, table: Tensor, pairing: str, dim: int, direction: float, *tensors: Tensor
    ) -> Tuple[Tensor, ...]:
        """Arguments as for :func:`launch`."""
        ctx.save_for_backward(table)
        ctx.settings = (pairing, dim, -direction)
        return launch(tensors, table, pairing, dim, direction)

    @staticmethod
    def backward(ctx: Layer, *gradients: Tensor) -> Tuple[Any, ...]:
        """Products with the conjugates, in one kernel."""
        (table,) = ctx.saved_tensors
        return (None, None, None, None, *rotate(gradients, table, *ctx.settings))


def rotate(
    tensors: Sequence[Tensor], table: Tensor, pairing: str, dim: int, direction: float = 1.0
) -> Tuple[Tensor, ...]:
    """The result of :func:`launch`, with a gradient where gradients are enabled."""
    if torch.is_grad_enabled():
        return _Rotation.apply(table, pairing, dim, direction, *tensors)
    return launch(tensors, table, pairing, dim, direction)
