"""xPos: rotary positions whose products decay with the distance.

Sun et al., arXiv 2212.10554.  A rotation by n·θ_i is combined with a
scale, so that the product of a query at n and a key at m ≤ n decays, fast frequencies most:

    q'_n = ζ^{n/B} · R_n q_n,    k'_m = ζ^{-m/B} · R_m k_m
    ζ_i = ((i-1) / (d/2) + γ) / (1 + γ),   i = 1 … d/2,   γ = 0.4,   B = 512

The scales of queries fall and the scales of keys grow with the position.  With positions from 0 on,
the scales leave the range of float16 at 4,532 tokens; here positions are counted from the middle of
the longest sequence, which changes no product and lets scales use the range above and below 1.
"""

import math
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Optional, Tuple

import torch
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError, flag_of
from fairseq_posenc.encodings.base import Rotation, Stack
from fairseq_posenc.encodings.registry import register_encoding
from fairseq_posenc.encodings.rotary import Rotary, RotaryFlags
from fairseq_posenc.encodings.rotary_frequencies import rotated_channels
from fairseq_posenc.flags.options import Options
from fairseq_posenc.flags.settings import setting

#: Log of the largest scale; even the product of two such scales is finite in float32.
RANGE = {torch.float16: math.log(2.0**10), torch.float32: 40.0}


@dataclass
class XposFlags(RotaryFlags):
    """Flags of xPos, beside the flags of the rotary encoding."""

    xpos_scale_base: Optional[float] = setting(
        512.0,
        "B, the distance in tokens at which products have decayed by ζ",
        role="model",
        above=0,
        at_most=1e9,
    )
    xpos_gamma: Optional[float] = setting(
        0.4,
        "γ in ζ_i = ((i-1) / (d/2) + γ) / (1 + γ); a larger one decays less",
        role="model",
        above=0,
        at_most=1e6,
    )


@lru_cache(maxsize=None)  # constant
def log_decays(dim: int, gamma: float, device: Optional[torch.device] = None) -> Tensor:
    """log ζ_i for i = 1 … dim/2, float64.

    >>> log_decays(4, 0.5).exp()
    tensor([0.3333, 0.6667], dtype=torch.float64)

    Args:
        dim: number of rotated channels.
        gamma: γ.
        device: device of the result.
    """
    steps = torch.arange(0, dim, 2, dtype=torch.float64, device=device) / dim
    return ((steps + gamma) / (1 + gamma)).log()


def check_range(decay: float, side: str, longest: int, dtype: torch.dtype) -> None:
    """Refuse scales beyond the range of *dtype*.

    Args:
        decay: logarithm of the steepest scale of one position, below 0.
        side: encoder or decoder, for the message.
        longest: number of positions.
        dtype: float32 or float16.

    Raises:
        UsageError: naming the lengths.
    """
    most = int(2 * RANGE[dtype] / -decay)
    if longest > most:
        name = str(dtype).replace("torch.", "")
        wider = ", or a wider type such as bfloat16" if dtype == torch.float16 else ""
        raise UsageError(
            f"--position-encoding xpos: over the {longest} positions of the {side} its scales "
            f"leave the range of {name}, which holds {most}; give fewer positions, or a larger "
            f"--xpos-scale-base{wider}"
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

    Args:
        options: reads ``xpos_scale_base``, ``xpos_gamma`` and the flags of :class:`Rotary`, but
            refuses those for values and for scaled frequencies.
        stack: head size, side and the longest sequence.
    """

    applies_to_features = False  # queries and keys have different scales
    named = "xpos"

    def __init__(self, options: Options, stack: Stack) -> None:
        super().__init__(options, stack)
        self.scale_base, self.gamma = float(options.xpos_scale_base), float(options.xpos_gamma)
        self.side, self.longest = stack.side, stack.max_positions

    @classmethod
    def check(cls, options: Options, stack: Stack) -> None:
        """Refuse flags that contradict xPos, and scales that leave the range of float32."""
        without = {
            "rotary_value": "rotated values",
            "rotary_scaling": "scaled frequencies",
            "rotary_scaling_factor": "scaled frequencies",
        }
        defaults = {field.name: field.metadata["default"] for field in fields(XposFlags)}
        for name, what in without.items():
            value = getattr(options, name)
            if value != defaults[name]:
                flag = flag_of(name) + ("" if value is True else f" {value}")
                raise UsageError(
                    f"{flag}: xPos is defined without {what}; drop it, or give "
                    "--position-encoding rotary"
                )
        super().check(options, stack)
        dim, gamma = rotated_channels(options, stack), float(options.xpos_gamma)
        decay = float(log_decays(dim, gamma)[0]) / float(options.xpos_scale_base)
        check_range(decay, stack.side, stack.max_positions, torch.float32)

    def rotation(self, layer: int) -> Optional[Rotation]:
        """None: queries and keys are scaled, too."""
        return None

    def exceeded(self, length: int) -> None:
        """No warning: xPos is made for sequences longer than in training."""

    def table(self, positions: Tensor, layer: int = 0) -> Tensor:
        """ζ^{n/B} e^{i n θ} for queries and ζ^{-n/B} e^{i n θ} for keys.

        Args:
            positions: (1|B, T), integers.
            variant: the base, as in :class:`Rotary`.

        Returns:
            (2, 1|B, T, 1, d/2), complex64; or (2, 1|B, T, 1, d), as in :class:`Rotary`.
        """
        rotations = super().table(positions, layer)  # (1|B, T, 1, d/2)
        decays = log_decays(self.dim, self.gamma, positions.device) / self.scale_base
        steps = positions.to(torch.float64) - self.longest // 2
        scales = (steps[..., None, None] * decays).exp()  # (1|B, T, 1, d/2)
        if not rotations.is_complex():  # cosines and sines have the same scales
            scales = torch.cat((scales, scales), dim=-1)
        return torch.stack((rotations * scales.float(), rotations / scales.float()))

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, table: Tensor
    ) -> Tuple[Tensor, Tensor, Tensor]:
        """Rotated and scaled queries and keys (B, T, H, D), and the values."""
        if q.dtype == torch.float16:
            decay = float(log_decays(self.dim, self.gamma)[0]) / self.scale_base
            check_range(decay, self.side, self.longest, torch.float16)
        return self.rotate(q, table[0]), self.rotate(k, table[1]), v
