"""Copies between layouts and types in linear attention, whose sums are taken in float32."""

import contextlib
from typing import Any, ContextManager, Tuple

import torch
from torch import Tensor

from fairseq_posenc.flags.options import Layer


def no_autocast(device: torch.device) -> ContextManager[Any]:
    """A context without autocast on *device*."""
    if device.type not in ("cpu", "cuda"):
        return contextlib.nullcontext()
    return torch.autocast(device.type, enabled=False)


class TransposedCast(torch.autograd.Function):
    """(B, T, H, D) to (B, H, T, D) or back, dense and in another type, with one copy.

    Its gradient, too, takes one copy, where autograd casts first and then makes it dense.
    """

    @staticmethod
    def forward(ctx: Layer, x: Tensor, dtype: torch.dtype) -> Tensor:
        """*x* with its second and third dimension exchanged, in *dtype*."""
        ctx.dtype = x.dtype
        return _dense(x.transpose(1, 2), dtype)

    @staticmethod
    def backward(ctx: Layer, *gradients: Tensor) -> Tuple[Tensor, None]:
        """The gradient in the type and layout of the input."""
        return _dense(gradients[0].transpose(1, 2), ctx.dtype), None


def _dense(x: Tensor, dtype: torch.dtype) -> Tensor:
    return x.to(dtype, memory_format=torch.contiguous_format).contiguous()


def narrow(x: Tensor, dtype: torch.dtype) -> Tensor:
    """(B, H, T, D) as (B, T, H, D) in *dtype*, clamped to the range of half precision.

    bfloat16 has that of float32.  Weights of rotated features do not sum to one, and are large
    where the denominator is small.
    """
    if dtype == torch.float16:
        most = torch.finfo(dtype).max
        x = x.clamp(-most, most)
    return TransposedCast.apply(x, dtype)
