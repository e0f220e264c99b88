"""T5's relative position bias: a learned logit for each head and bucket of distances.

Raffel et al., arXiv 1910.10683, section 2.1 (RoFormer Eq. 35; the relative part of TUPE-R):
q_i · k_j + b_{bucket(j - i)}.  Short distances have a bucket each, longer ones share buckets of
logarithmic width, and everything beyond the maximum distance shares the last bucket.
"""

import math
from dataclasses import dataclass
from typing import Optional

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.encodings.base import DistanceBias, Stack, init_normal
from fairseq_posenc.encodings.registry import register_encoding
from fairseq_posenc.flags.options import Options
from fairseq_posenc.flags.settings import setting


@dataclass
class T5Flags:
    """Flags of the T5 bias."""

    t5_num_buckets: Optional[int] = setting(
        32, "number of buckets; encoders use half for each side", at_least=2, at_most=1_000_000
    )
    t5_max_distance: Optional[int] = setting(
        128, "distance in tokens from which on all share a bucket", at_least=2, at_most=2**31 - 1
    )
    t5_products: Optional[bool] = setting(
        False,
        "compute the logits of a bucket from a learned vector r, as (r F^Q)·(r F^K) for each head "
        "(tried in TUPE section 5), instead of learning them",
    )


class BucketProducts(nn.Module):
    """b = 1/√(2D) · (r F^Q)·(r F^K) for a vector r per bucket (TUPE section 5, with our factor)."""

    def __init__(self, num_buckets: int, stack: Stack) -> None:
        super().__init__()
        self.head_dim = stack.head_dim
        channels = stack.num_heads * stack.head_dim
        self.table = nn.Embedding(num_buckets, channels)
        self.q_proj = nn.Linear(channels, channels, bias=False)  # F^Q
        self.k_proj = nn.Linear(channels, channels, bias=False)  # F^K
        init_normal(self.table, self.q_proj, self.k_proj)

    def forward(self) -> Tensor:
        """Logits of all buckets, (num_buckets, H)."""
        r = self.table.weight
        products = self.q_proj(r) * self.k_proj(r) * (2 * self.head_dim) ** -0.5
        return products.view(len(r), -1, self.head_dim).sum(dim=-1)


def relative_position_bucket(
    distance: Tensor, num_buckets: int, max_distance: int, causal: bool
) -> Tensor:
    """Bucket of each distance, key minus query.

    >>> distance = torch.tensor([-200, -20, -1, 0, 1, 20, 200])
    >>> relative_position_bucket(distance, 32, 128, causal=True).tolist()
    [31, 17, 1, 0, 0, 0, 0]
    >>> relative_position_bucket(distance, 32, 128, causal=False).tolist()
    [15, 10, 1, 0, 17, 26, 31]

    All distances from *max_distance* on share the last bucket of their side.  If *causal*, all
    buckets are for earlier keys; if not, each side has half of the buckets.  Distances are in
    tokens; the result has the shape of *distance*.
    """
    first = torch.zeros_like(distance)
    if causal:
        steps = (-distance).clamp(min=0)
    else:
        num_buckets //= 2
        first = (distance > 0).long() * num_buckets
        steps = distance.abs()
    exact = num_buckets // 2
    # logarithmic from *exact* to *max_distance*; the clamp avoids log(0)
    growth = torch.log(steps.clamp(min=1).float() / exact) / math.log(max_distance / exact)
    wide = (exact + (growth * (num_buckets - exact)).long()).clamp(max=num_buckets - 1)
    return first + torch.where(steps < exact, steps, wide)


@register_encoding(
    "t5",
    paper="Raffel et al. 2020, arXiv 1910.10683",
    summary="a learned logit per head and distance bucket, shared by all layers",
    flags=T5Flags,
)
class T5Bias(DistanceBias):
    """b_{bucket(j - i), h}, from one table for all layers of the stack."""

    constant_from: int

    def __init__(self, options: Options, stack: Stack) -> None:
        super().__init__(options, stack)
        self.num_buckets, self.constant_from = options.t5_num_buckets, options.t5_max_distance
        self.causal = stack.causal
        self.products = BucketProducts(self.num_buckets, stack) if options.t5_products else None
        if self.products is None:
            self.table = nn.Embedding(self.num_buckets, stack.num_heads)
            init_normal(self.table)

    @classmethod
    def check(cls, options: Options, stack: Stack) -> None:
        """Refuse numbers of buckets that leave no room for a logarithmic range."""
        buckets, longest = options.t5_num_buckets, options.t5_max_distance
        least = 2 if stack.causal else 4
        if buckets < least or buckets % 2:
            raise UsageError(f"--t5-num-buckets {buckets}: must be even and at least {least}")
        if longest <= buckets // least:
            raise UsageError(
                f"--t5-max-distance {longest}: must be above {buckets // least} for "
                f"--t5-num-buckets {buckets}"
            )

    def by_distance(self, distances: Tensor) -> Tensor:
        """b_{bucket(d)}, (H, N), for *distances* d (N)."""
        sizes = (self.num_buckets, self.constant_from)
        logits = self.table.weight if self.products is None else self.products()
        return F.embedding(relative_position_bucket(distances, *sizes, self.causal), logits).t()
