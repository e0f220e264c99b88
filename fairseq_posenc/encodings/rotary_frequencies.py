"""The frequencies of rotary encodings.

RoFormer Eq. 7 (arXiv 2104.09864 numbers it as 15) rotates pair i by m·θ_i at position m, with

    θ_i = base^{-2(i-1)/d},    i = 1 … d/2.

p-RoPE, Barbero et al., arXiv 2410.06205, keeps the highest share p of the frequencies, and does not
rotate the other pairs:

    θ_i = 0    for i > p · d/2

so that these carry meaning over any distance; 1-RoPE is RoPE, and 0-RoPE has no positions.  It
differs from rotating a share of the channels, which spreads all frequencies over fewer pairs.
"""

import math
from functools import lru_cache
from typing import Optional

import torch
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.encodings.rotary_scaling import UNSCALED, Scaling
from fairseq_posenc.encodings.stack import Stack
from fairseq_posenc.flags.options import Options


def rotated_channels(options: Options, stack: Stack) -> int:
    """d, the number of channels of each head that are rotated, in whole pairs."""
    return 2 * round(stack.head_dim * float(options.rotary_fraction) / 2)


def kept_pairs(options: Options, dim: int) -> int:
    """The number of pairs that keep their frequency, p · d/2, rounded down as in the paper's code.

    Args:
        options: reads ``rotary_kept``.
        dim: d.
    """
    return int(float(options.rotary_kept) * dim / 2 + 1e-9)  # 0.7 · 10 is below 7 in floats


@lru_cache(maxsize=None)  # recomputing it would dominate a decoding step
def frequencies(
    dim: int,
    base: float,
    device: Optional[torch.device] = None,
    scaling: Scaling = UNSCALED,
    kept: Optional[int] = None,
) -> Tensor:
    """θ_i for i = 1 … dim/2, float64, shape (dim/2,).

    >>> frequencies(4, 10000.0)
    tensor([1.0000, 0.0100], dtype=torch.float64)
    >>> frequencies(4, 10000.0, kept=1)
    tensor([1., 0.], dtype=torch.float64)

    Args:
        dim: number of rotated channels.
        base: 10000 in the paper.
        device: device of the result.
        scaling: lowers the frequencies for sequences longer than in training.
        kept: number of pairs that are rotated, by default all.
    """
    theta = scaling.frequencies(dim, base)
    if kept is not None and kept < len(theta):  # not in place, which ONNX cannot express
        theta = torch.cat((theta[:kept], torch.zeros_like(theta[kept:])))
    return theta.to(device)


def check_kept(options: Options, stack: Stack) -> None:
    """Refuse a ``--rotary-kept`` that leaves no pair of channels to rotate.

    Args:
        options: reads ``rotary_kept`` and ``rotary_fraction``.
        stack: head size and side.

    Raises:
        UsageError: naming the smallest share that works.
    """
    dim = rotated_channels(options, stack)
    if kept_pairs(options, dim) == 0:
        least = math.ceil(20_000 / dim) / 10_000  # rounded up: a smaller one keeps none
        raise UsageError(
            f"--rotary-kept {options.rotary_kept:g}: keeps none of the {dim // 2} frequencies of "
            f"head size {stack.head_dim} of the {stack.side}; the smallest that works is "
            f"{least:g}, and --position-encoding none rotates nothing"
        )
