"""KERPLE: conditionally positive definite kernels of the distance, with learned shapes.

Chi, Fan, Ramadge, Rudnicky, arXiv 2205.09921.  Head h adds one of

    power         -r1 · |i - j|^r2               r1 > 0,  0 < r2 ≤ 2
    logarithmic   -r1 · log(1 + r2 · |i - j|)    r1 > 0,  r2 > 0

to the logit of query i and key j; r1 and r2 differ by head and are shared by all layers.  To keep
r1 and r2 in these ranges, the parameters are log r1 and log r2 or, in the power kernel, log r1 and
the logit of r2 / 2; the released code instead clips r1 and r2 after each update.  Initial values
are drawn as in the released code.
"""

from dataclasses import dataclass
from typing import Optional

import torch
from torch import Tensor, nn

from fairseq_posenc.basics.tensors import AT_LEAST_FLOAT32
from fairseq_posenc.encodings.base import DistanceBias, Stack
from fairseq_posenc.encodings.registry import register_encoding
from fairseq_posenc.flags.options import Options
from fairseq_posenc.flags.settings import setting

#: The largest penalty: it fits into float16, and larger penalties give the same softmax.
MOST = 6e4
#: Smallest initial value of r1 and r2, as in the released code.
LEAST = 0.01


@dataclass
class KerpleFlags:
    """The flag of KERPLE."""

    kerple_kernel: Optional[str] = setting(
        "logarithmic",
        "kernel of KERPLE: {choices}",
        choices=("power", "logarithmic"),
        or_with={"dape_bias": ("kerple",)},  # DAPE can adapt this bias
    )


@register_encoding(
    "kerple",
    paper="Chi et al. 2022, arXiv 2205.09921",
    summary="a penalty on the logits: a power or a logarithm of the distance, learned per head",
    flags=KerpleFlags,
)
class Kerple(DistanceBias):
    """-r1 · log(1 + r2 · |i - j|) or -r1 · |i - j|^r2."""

    def __init__(self, options: Options, stack: Stack) -> None:
        super().__init__(options, stack)
        self.power = options.kerple_kernel == "power"
        unit, double = (torch.rand(2, stack.num_heads) * torch.tensor([[1.0], [2.0]])).clamp(LEAST)
        r1, r2 = (unit, double) if self.power else (double, unit)
        self.scale = nn.Parameter(r1.log())
        self.shape = nn.Parameter(torch.logit(r2 / 2) if self.power else r2.log())

    def by_distance(self, distances: Tensor) -> Tensor:
        """Logits (H, N), at least float32, of *distances* (N), integers, key minus query."""
        wide = AT_LEAST_FLOAT32[self.scale.dtype]
        r1, shape = self.scale.to(wide).exp().unsqueeze(1), self.shape.to(wide).unsqueeze(1)
        steps = distances.abs().to(wide)
        if self.power:
            # 0^r2 is 0 for all r2, but autograd would multiply 0 by log 0
            powers = steps.clamp(min=1) ** (2 * shape.sigmoid())
            penalty = r1 * powers.masked_fill(steps == 0, 0.0)
        else:
            penalty = r1 * torch.log1p(shape.exp() * steps)
        return -penalty.clamp(max=MOST)
