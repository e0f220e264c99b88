"""Shaw's relative positions: learned key and, optionally, value vectors for every distance.

Shaw, Uszkoreit, Vaswani, arXiv 1803.02155, Eq. 3 and 4 (RoFormer Eq. 32), with d = j - i clipped:

    e_ij = 1/√D · q_i · (k_j + a^K_d)
    z_i  = Σ_j softmax(e_i)_j · (v_j + a^V_d)        d = max(-K, min(K, j - i))

The heads of a layer share a^K and a^V; layers do not.
"""

from dataclasses import dataclass
from typing import Optional

import torch
from torch import Tensor, nn

from fairseq_posenc.encodings.base import Content, ContentBias, Stack
from fairseq_posenc.encodings.distance import distances
from fairseq_posenc.encodings.registry import register_encoding
from fairseq_posenc.options import Options
from fairseq_posenc.settings import setting


@dataclass
class ShawFlags:
    """Flags of Shaw's relative positions."""

    shaw_max_distance: Optional[int] = setting(
        16,
        "clipping distance in tokens; longer distances share a vector (Shaw et al. section 3.2)",
        role="model",
        at_least=1,
        at_most=1_000_000,  # a vector each
        formerly="shaw_distance",
    )
    shaw_values: Optional[bool] = setting(
        False,
        "also add learned vectors to the values, not only to the keys (Shaw et al. Eq. 3); "
        "attention then runs without a fused kernel",
        role="model",
    )


@register_encoding(
    "shaw",
    paper="Shaw et al. 2018, arXiv 1803.02155",
    summary="learned keys, and optionally values, for each clipped distance",
    flags=ShawFlags,
)
class ShawBias(ContentBias):
    """q_i · a^K_d / √D, and Σ_j w_ij a^V_d.

    In a causal stack distances end at 0.  Later keys that are visible nevertheless, under
    ``--full-context-alignment``, count as distance 0, as with the T5 bias.

    Args:
        options: reads ``shaw_max_distance`` and ``shaw_values``.
        stack: head size and causality.
    """

    def __init__(self, options: Options, stack: Stack) -> None:
        super().__init__(options, stack)
        self.max_distance = int(options.shaw_max_distance)
        self.max_later = 0 if stack.causal else self.max_distance
        self.needs_weights = bool(options.shaw_values)
        count = self.max_distance + 1 + self.max_later
        self.key_table = nn.Embedding(count, stack.head_dim)
        self.value_table = nn.Embedding(count, stack.head_dim) if options.shaw_values else None
        for table in (self.key_table, self.value_table):
            if table is not None:
                nn.init.xavier_uniform_(table.weight)

    @classmethod
    def changes_values(cls, options: Options) -> Optional[str]:
        """``--shaw-values``, if enabled."""
        return "--shaw-values" if options.shaw_values else None

    def forward(self, content: Content, vectors: Optional[Tensor] = None) -> Tensor:
        """Logits (B, H, T, S); arguments as in :class:`ContentBias`.

        On a CPU at 256 tokens, gather takes 0.8 to 0.9 of the time of shifting rows.
        """
        q = content.q
        products = torch.matmul(q * content.scale, self.key_table.weight.t())  # (B, H, T, 2K + 1)
        rows = self._rows(q.size(2), content.k.size(2), q.device)
        return products.gather(-1, rows.expand(*products.shape[:3], -1))

    def relative_values(self, content: Content, weights: Tensor) -> Optional[Tensor]:
        """Σ_j w_ij a^V_d, (B, H, T, D), for weights (B, H, T, S).

        Weights of equal distance are summed first, in float32: thousands may share the clipped
        distance, more than half precision can accumulate.
        """
        if self.value_table is None:
            return None
        wide = weights.to(torch.promote_types(weights.dtype, torch.float32))
        rows = self._rows(wide.size(2), wide.size(3), wide.device).expand_as(wide)
        sums = wide.new_zeros(*wide.shape[:3], self.value_table.num_embeddings)
        sums = sums.scatter_add(-1, rows, wide)  # (B, H, T, 2K + 1)
        return torch.matmul(sums.type_as(weights), self.value_table.weight).type_as(weights)

    def _rows(self, query_length: int, key_length: int, device: torch.device) -> Tensor:
        """Row of the tables for each query and key, (T, S)."""
        clipped = distances(query_length, key_length, device).clamp(
            -self.max_distance, self.max_later
        )
        return clipped + self.max_distance
