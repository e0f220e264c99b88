"""xPos: rotary positions whose products decay with the distance.

Sun et al., arXiv 2212.10554.  A rotation by n·θ_i is combined with a scale.  The product of a query
at n and a key at m ≤ n therefore decays with n - m, at high frequencies most:

    q'_n = ζ^{n/B} · R_n q_n,    k'_m = ζ^{-m/B} · R_m k_m
    ζ_i = ((i-1) / (d/2) + γ) / (1 + γ),   i = 1 … d/2,   γ = 0.4,   B = 512

The scales of queries fall and those of keys grow with the position.  With positions from 0 on, they
leave the range of float16 at 4,532 tokens.  Here positions are counted from the middle of the
longest sequence, which changes no product and lets scales use the range above and below 1.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Optional, Tuple

import torch
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.encodings.base import Rotation, Stack
from fairseq_posenc.encodings.registry import register_encoding
from fairseq_posenc.encodings.rotary import Rotary, RotaryFlags, rotated
from fairseq_posenc.flags.options import Options
from fairseq_posenc.flags.settings import setting

#: Log of the largest scale; even the product of two such scales is finite in float32.
RANGE = {torch.float16: math.log(2.0**10), torch.float32: 40.0}


@dataclass
class XposFlags(RotaryFlags):
    """Flags of xPos, in addition to those of the rotary encoding."""

    xpos_scale_base: Optional[float] = setting(
        512.0, "B, the distance in tokens at which products are scaled by ζ", above=0, at_most=1e9
    )
    xpos_gamma: Optional[float] = setting(
        0.4,
        "γ in ζ_i = ((i-1) / (d/2) + γ) / (1 + γ); with a larger γ, products decay less",
        above=0,
        at_most=1e6,
    )


@lru_cache(maxsize=None)  # constant
def decays(dim: int, gamma: float, base: float, device: Optional[torch.device] = None) -> Tensor:
    """(log ζ_i) / B for i = 1 … d/2, float64, with B = *base*.

    >>> decays(4, 0.5, 1.0).exp()
    tensor([0.3333, 0.6667], dtype=torch.float64)
    """
    steps = torch.arange(0, dim, 2, dtype=torch.float64, device=device) / dim
    return ((steps + gamma) / (1 + gamma)).log() / base


def check_range(options: Options, stack: Stack, dtype: torch.dtype) -> None:
    """Refuse scales beyond the range of *dtype*, float32 or float16."""
    dim, _ = rotated(options, stack.head_dim)
    steepest = float(decays(dim, options.xpos_gamma, options.xpos_scale_base)[0])
    longest, most = stack.max_positions, int(2 * RANGE[dtype] / -steepest)
    if longest > most:
        name = str(dtype).replace("torch.", "")
        wider = ", or a wider type such as bfloat16" if dtype == torch.float16 else ""
        raise UsageError(
            f"--position-encoding xpos: over the {longest} positions of the {stack.side} its "
            f"scales leave the range of {name}, which is enough for {most}; give fewer positions, "
            f"or a larger --xpos-scale-base{wider}"
        )


@register_encoding(
    "xpos",
    paper="Sun et al. 2023, arXiv 2212.10554",
    summary="rotary with products that decay with the distance (xPos)",
    flags=XposFlags,
    causal_only="products with later keys would grow with the distance",
)
class Xpos(Rotary):
    """Rotates the leading channels of every head, and scales them by the position.

    The flags for values and for scaled frequencies are refused.
    """

    applies_to_features = False  # queries and keys have different scales
    named = "xpos"

    def __init__(self, options: Options, stack: Stack) -> None:
        super().__init__(options, stack)
        self.options, self.stack = options, stack

    @classmethod
    def check(cls, options: Options, stack: Stack) -> None:
        """Refuse flags that contradict xPos, and scales that leave the range of float32."""
        scaling = options.rotary_scaling
        refused = {
            "--rotary-value": options.rotary_value and "rotated values",
            f"--rotary-scaling {scaling}": scaling != "none" and "scaled frequencies",
        }
        for flag, what in refused.items():
            if what:
                raise UsageError(
                    f"{flag}: xPos is defined without {what}; drop the flag, or "
                    "give --position-encoding rotary"
                )
        super().check(options, stack)
        check_range(options, stack, torch.float32)

    def rotation(self, layer: int) -> Optional[Rotation]:
        """None, because queries and keys are scaled, too."""
        return None

    def exceeded(self, length: int) -> None:
        """Do not warn: xPos is made for sequences longer than in training."""

    def table(self, positions: Tensor, layer: int = 0) -> Tensor:
        """ζ^{n/B} e^{i n θ} for queries and ζ^{-n/B} e^{i n θ} for keys.

        Returns:
            (2, 1|B, T, 1, d/2), complex64; or (2, 1|B, T, 1, d), as in :class:`Rotary`.
        """
        rotations = super().table(positions, layer)  # (1|B, T, 1, d/2)
        gamma, base = self.options.xpos_gamma, self.options.xpos_scale_base
        steps = positions.to(torch.float64) - self.stack.max_positions // 2
        scales = (steps[..., None, None] * decays(self.dim, gamma, base, positions.device)).exp()
        if not rotations.is_complex():  # cosines and sines have the same scales
            scales = torch.cat((scales, scales), dim=-1)
        return torch.stack((rotations * scales, rotations / scales)).to(rotations.dtype)

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, table: Tensor
    ) -> Tuple[Tensor, Tensor, Tensor]:
        """Rotated and scaled queries and keys (B, T, H, D), and the values."""
        if q.dtype == torch.float16:
            check_range(self.options, self.stack, torch.float16)
        return self.rotate(q, table[0]), self.rotate(k, table[1]), v
