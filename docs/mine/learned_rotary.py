"""Rotary with learned frequencies."""

from typing import Any, Tuple

import torch
from torch import Tensor, nn

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.encodings import Stack, register_encoding
from fairseq_posenc.encodings.base import QKVTransform


@register_encoding("learned_rotary", paper="", summary="rotary with learned frequencies")
class LearnedRotary(QKVTransform):
    """Rotates channels i and i + D/2 of queries and keys by the angle m θ_i at position m."""

    applies_to_features = True

    def __init__(self, options: Any, stack: Stack) -> None:
        super().__init__(options, stack)
        self.theta = nn.Parameter(10000.0 ** -torch.linspace(0, 1, stack.head_dim // 2))

    @classmethod
    def check(cls, options: Any, stack: Stack) -> None:
        """Refuse an odd D, before anything is built."""
        if stack.head_dim % 2:
            raise UsageError(f"learned_rotary: {stack.head_dim} channels per head; must be even")

    def table(self, positions: Tensor, layer: int = 0) -> Tensor:
        """Cosines and sines (1|B, T, 1, D) of positions (1|B, T)."""
        angles = positions[:, :, None, None] * self.theta.float()
        return torch.cat((angles.cos(), angles.sin()), dim=-1)

    def rotate(self, x: Tensor, table: Tensor) -> Tensor:
        """Rotated queries, keys or features (B, T, H, D)."""
        cos, sin = table.chunk(2, dim=-1)
        a, b = x.float().chunk(2, dim=-1)
        return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1).type_as(x)

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, table: Tensor
    ) -> Tuple[Tensor, Tensor, Tensor]:
        """Rotated queries and keys, and the values, (B, T, H, D) each."""
        return self.rotate(q, table), self.rotate(k, table), v
