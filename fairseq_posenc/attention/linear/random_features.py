"""Orthogonal random projections, and a memory-efficient exponential.

Choromanski et al. 2021, arXiv 2009.14794.
"""

import hashlib
import math
from typing import Any, Optional, Tuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def orthogonal_rows(rows: int, columns: int, key: str) -> Tensor:
    """Random rows with the norms of Gaussian vectors, orthogonal within blocks of D rows.

    Choromanski et al. 2021, section 2.4.  The state of PyTorch's random generators is unchanged.

    >>> rows = orthogonal_rows(2, 4, key="any text")
    >>> bool((rows[0] @ rows[1]).abs() < 1e-9)
    True

    Args:
        rows: M.
        columns: D.
        key: seed, as text.

    Returns:
        (M, D), float64, on the CPU.
    """
    digest = hashlib.sha256(key.encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))
    blocks = []
    for _ in range(math.ceil(rows / columns)):
        gaussian = torch.randn(columns, columns, dtype=torch.float64, generator=generator)
        q, r = torch.linalg.qr(gaussian)
        blocks.append((q * r.diagonal().sign()).t())  # with these signs, QR is unique
    lengths = torch.randn(rows, columns, dtype=torch.float64, generator=generator).norm(dim=1)
    return torch.cat(blocks)[:rows] * lengths.unsqueeze(1)


class Exponential(torch.autograd.Function):
    """exp(exponents + shift) + ε, computed in place; only the result is saved for the gradient.

    These are the largest tensors of the layer, and autograd would save four of them.
    """

    @staticmethod
    def forward(
        ctx: Any,
        exponents: Tensor,
        shift: Tensor,
        per_query_max: bool,
        limit: float,
        epsilon: float,
    ) -> Tensor:
        """Features (B, H, T, M).

        Args:
            exponents: (B, H, T, M).
            shift: (B, H, T, 1), added to them.
            per_query_max: also subtract the largest exponent of each query.
            limit: upper bound of the exponents.
            epsilon: ε.
        """
        ctx.mark_dirty(exponents)
        ctx.per_query_max, ctx.limit, ctx.epsilon = per_query_max, limit, epsilon
        shift = shift - exponents.amax(dim=-1, keepdim=True) if per_query_max else shift
        exponents.add_(shift)
        exponents = exponents if limit == math.inf else exponents.clamp_(max=limit)
        features = exponents.exp_().add_(epsilon)
        ctx.save_for_backward(features)
        return features

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tuple[Optional[Tensor], ...]:
        """Gradients of the exponents and of their shift."""
        (features,) = ctx.saved_tensors
        slopes = features - ctx.epsilon
        if ctx.limit != math.inf:
            slopes.masked_fill_(slopes > (1 - 1e-5) * math.exp(ctx.limit), 0.0)
        slopes *= gradient
        total = slopes.sum(dim=-1, keepdim=True)
        if ctx.per_query_max:
            top = features == features.amax(dim=-1, keepdim=True)
            slopes -= top * (total / top.sum(dim=-1, keepdim=True))
        return slopes, total, None, None, None
