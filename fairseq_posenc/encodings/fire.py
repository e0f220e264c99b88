"""FIRE: a learned function of the distance, normalised by the position of the query.

Li et al., arXiv 2310.04418, section 3: a query at position i adds

    b(i, j) = f_θ(ψ(i - j) / ψ(max(L, i))),    ψ(x) = log(c x + 1)

to the logit of key j, where f_θ is a two-layer perceptron with ReLU and one output per head, and
c > 0 and the threshold L > 0 are learned.  A query's distances are normalised by its position i,
not by the length of the text, so cached decoding equals the full forward pass.  All layers share
one function, as in the paper's FIRE-S.

The paper only treats causal stacks.  In an encoder, queries also see later keys; for these, i and j
are exchanged, and the argument of f_θ is negated.
"""

import math
from dataclasses import dataclass
from typing import Optional, Tuple

import torch
from torch import Tensor, nn

from fairseq_posenc.basics.tensors import AT_LEAST_FLOAT32
from fairseq_posenc.encodings.base import Places, SharedBias, Stack
from fairseq_posenc.encodings.registry import register_encoding
from fairseq_posenc.flags.options import Options
from fairseq_posenc.flags.settings import setting

_ADAPTED = {"dape_bias": ("fire",)}  # DAPE can adapt this bias


@dataclass
class FireFlags:
    """Flags of FIRE."""

    fire_width: Optional[int] = setting(
        32, "hidden units of FIRE's perceptron", at_least=1, at_most=65536, or_with=_ADAPTED
    )
    fire_length: Optional[int] = setting(
        512,
        "initial value of the learned length L, in tokens, up to which texts are not interpolated",
        role="training",
        at_least=1,
        at_most=2**31 - 1,
        or_with=_ADAPTED,
    )


@register_encoding(
    "fire",
    paper="Li et al. 2024, arXiv 2310.04418",
    summary="a learned function of the distance relative to the length so far",
    flags=FireFlags,
    relative=False,
)
class Fire(SharedBias):
    """f_θ(ψ(i - j) / ψ(max(L, i))).

    The parameters are log c and log L, so that c and L stay positive.  In a causal stack, later
    keys, if visible, count as distance 0, as with the T5 bias.
    """

    def __init__(self, options: Options, stack: Stack) -> None:
        super().__init__(options, stack)
        self.causal = stack.causal
        width = int(options.fire_width)
        self.log_c = nn.Parameter(torch.tensor(math.log(0.1)))
        self.log_length = nn.Parameter(torch.tensor(math.log(options.fire_length)))
        first, second = nn.Linear(1, width), nn.Linear(width, stack.num_heads)
        self.weight_in, self.bias_in = nn.Parameter(first.weight.data[:, 0]), first.bias
        self.weight_out, self.bias_out = second.weight, second.bias

    def forward(self, places: Places) -> Tensor:
        """Logits (1|B, H, T, S)."""
        wide = AT_LEAST_FLOAT32[self.log_c.dtype]
        c, length = self.log_c.to(wide).exp(), self.log_length.to(wide).exp()
        i, j = places.queries.to(wide).unsqueeze(2), places.keys.to(wide).unsqueeze(1)
        steps = (i - j).clamp(min=0) if self.causal else (i - j)  # (1|B, T, S)
        farthest = i if self.causal else torch.maximum(i, j)
        psi = torch.log1p(c * steps.abs()) / torch.log1p(c * torch.maximum(farthest, length))
        return self.function(psi if self.causal else psi * steps.sign())

    def function(self, x: Tensor) -> Tensor:
        """f_θ(x) by heads, (1|B, H, T, S), for x (1|B, T, S)."""
        kinks, lines = self.segments(x.dtype)
        segment = torch.bucketize(x.detach(), kinks)  # (1|B, T, S)
        line = lines.index_select(1, segment.flatten())  # (2H, 1|B · T · S)
        offset, slope = line.view(2, -1, *x.shape)  # (H, 1|B, T, S)
        return torch.addcmul(offset, slope, x).transpose(0, 1)

    def segments(self, dtype: torch.dtype) -> Tuple[Tensor, Tensor]:
        """f_θ as line segments: the kinks in order, (N), and offsets and slopes, (2H, N + 1).

        A perceptron with one input and N hidden ReLUs is linear between N kinks.  Looking up the
        segment takes memory for 2H numbers per query and key, instead of N hidden units.
        """
        weight, bias, out = (p.to(dtype) for p in (self.weight_in, self.bias_in, self.weight_out))
        flat, falling = weight == 0, weight < 0
        kinks = (-bias / weight).detach().masked_fill(flat, math.inf)  # a constant unit has no kink
        kinks, order = kinks.sort()
        # left of all kinks, units of negative weight are active
        start = out @ torch.where(flat, bias.relu(), bias * falling) + self.bias_out.to(dtype)
        first = torch.cat((start, out @ (weight * falling))).unsqueeze(1)  # (2H, 1)
        # a kink switches its unit on if the weight is positive, else off
        changes = torch.cat((out * (bias * weight.sign()), out * weight.abs()))  # (2H, N)
        return kinks, torch.cat((first, changes[:, order]), dim=1).cumsum(dim=1)
