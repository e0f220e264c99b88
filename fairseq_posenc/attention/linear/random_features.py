"""Orthogonal random projections, and exp of projected vectors in little memory.

Choromanski et al. 2021, arXiv 2009.14794.
"""

import hashlib
import math
from typing import Any, Optional, Tuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def orthogonal_rows(rows: int, columns: int, key: str) -> Tensor:
    """Rows with the length of Gaussian vectors, orthogonal in blocks of as many as fit.

    Choromanski et al. 2021, section 2.4.  Does not touch PyTorch's per_query_max random numbers.

    Args:
        rows: M.
        columns: D.
        key: decides what is drawn.

    Returns:
        (M, D), float64, on the CPU.
    """
    digest = hashlib.sha256(key.encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))
    blocks = []
    for _ in range(math.ceil(rows / columns)):
        gaussian = torch.randn(columns, columns, dtype=torch.float64, generator=generator)
        q, r = torch.linalg.qr(gaussian)
        blocks.append((q * r.diagonal().sign()).t())  # the signs make it uniform, and unique
    lengths = torch.randn(rows, columns, dtype=torch.float64, generator=generator).norm(dim=1)
    return torch.cat(blocks)[:rows] * lengths.unsqueeze(1)


class Exponential(torch.autograd.Function):
    """exp(exponents + shift) + ε, in the memory of the exponents, and kept alone for the gradient.

    These are the largest tensors of the whole layer; autograd would keep four of them.
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
            per_query_max: then subtract the largest exponent of each query.
            limit: of the exponents.
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
