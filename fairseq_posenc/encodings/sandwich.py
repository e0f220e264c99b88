"""Sandwich: products of sinusoidal positions as logits, divided by a factor for each head.

Chi, Fan, Rudnicky, Ramadge, arXiv 2212.10356.  Words with sinusoidal positions have the products
(x_i + p_i)·(x_j + p_j); Sandwich keeps x_i · x_j and p_i · p_j, with sinusoids of size d̄:

    p_i · p_j = Σ_{t=1}^{d̄/2} cos((i - j) / 10000^{2t/d̄})

Head h of H divides these products by 8h/H.  Here d̄/2, the product at distance 0, is subtracted
first; this shifts all logits of a query equally, so the softmax is the same.
"""

from dataclasses import dataclass
from typing import Optional

import torch
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.encodings.base import DistanceBias, Stack
from fairseq_posenc.encodings.registry import register_encoding
from fairseq_posenc.flags.options import Options
from fairseq_posenc.flags.settings import setting


@dataclass
class SandwichFlags:
    """The flag of Sandwich."""

    sandwich_dim: Optional[int] = setting(
        128, "size of the sinusoids, even; if larger, logits decay faster", at_least=2, at_most=4096
    )


@register_encoding(
    "sandwich",
    paper="Chi et al. 2023, arXiv 2212.10356",
    summary="a fixed penalty: products of sinusoidal positions, divided by a factor for each head",
    flags=SandwichFlags,
)
class Sandwich(DistanceBias):
    """(p_i · p_j - d̄/2) / (8h/H), without parameters."""

    def __init__(self, options: Options, stack: Stack) -> None:
        super().__init__(options, stack)
        self.dim = int(options.sandwich_dim)

    @classmethod
    def check(cls, options: Options, stack: Stack) -> None:
        """Refuse sinusoids of odd size."""
        if int(options.sandwich_dim) % 2:
            raise UsageError(
                f"--sandwich-dim {options.sandwich_dim}: must be even, for sines and cosines"
            )

    def by_distance(self, distances: Tensor) -> Tensor:
        """Logits (H, N), float32, of *distances* (N), integers, key minus query."""
        terms = torch.arange(2, self.dim + 1, 2, dtype=torch.float64, device=distances.device)
        angles = distances.double().unsqueeze(1) * 10000.0 ** (-terms / self.dim)  # (N, d̄/2)
        products = (angles.cos() - 1).sum(dim=1).float()
        heads = torch.arange(1, self.num_heads + 1, device=distances.device)
        return products / (heads * (8.0 / self.num_heads)).unsqueeze(1)
