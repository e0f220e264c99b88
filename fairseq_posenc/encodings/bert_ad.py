"""BERT-A^d: separate projections of words and positions, and all four correlations of these.

TUPE, Ke, He, Liu, arXiv 2006.15595, section 4.3, the ablation between BERT and TUPE:

    α_ij = 1/√(4D) · ((x_i W^Q)·(x_j W^K) + (x_i W^Q)·(p_j U^K) + (p_i U^Q)·(x_j W^K)
                      + (p_i U^Q)·(p_j U^K))
         = 1/√(4D) · (x_i W^Q + p_i U^Q)·(x_j W^K + p_j U^K)

Hence p U^Q and p U^K are added to the queries and keys of every layer.  As in TUPE, layer norm is
applied to rows p of the table when they are used, and all layers share U^Q and U^K.
"""

from typing import Tuple

import torch
from torch import Tensor, nn

from fairseq_posenc.encodings.base import QKVTransform, Stack, init_normal
from fairseq_posenc.encodings.registry import register_encoding
from fairseq_posenc.flags.options import Options


@register_encoding(
    "bert_ad",
    paper="Ke et al. 2021, arXiv 2006.15595, section 4.3",
    summary="separately projected positions, added to queries and keys (BERT-A^d)",
    logit_scale=0.5,
    relative=False,
    bounded=True,
)
class UntiedProjections(QKVTransform):
    """q_i + LayerNorm(p_i) U^Q and k_j + LayerNorm(p_j) U^K."""

    differs_by_head = True

    def __init__(self, options: Options, stack: Stack) -> None:
        super().__init__(options, stack)
        self.head_dim = stack.head_dim
        channels = stack.num_heads * stack.head_dim
        self.positions = nn.Embedding(stack.max_positions, channels)
        self.norm = nn.LayerNorm(channels)
        self.q_proj = nn.Linear(channels, channels)
        self.k_proj = nn.Linear(channels, channels)
        init_normal(self.positions, self.q_proj, self.k_proj)

    def table(self, positions: Tensor, layer: int = 0) -> Tensor:
        """p U^Q and p U^K for *positions* (1|B, T), as (2, 1|B, T, H, D)."""
        p = self.norm(self.positions(positions))  # (1|B, T, C)
        both = torch.stack((self.q_proj(p), self.k_proj(p)))
        return both.view(*both.shape[:-1], -1, self.head_dim)

    def without_content(self, positions: Tensor) -> Tensor:
        """The position-to-position term (p_i U^Q)·(p_j U^K), (1|B, H, T, T)."""
        q, k = self.table(positions)  # (1|B, T, H, D) each
        return torch.einsum("bthd,bshd->bhts", q, k)

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, table: Tensor
    ) -> Tuple[Tensor, Tensor, Tensor]:
        """Queries and keys (B, T, H, D) plus projected positions, and unchanged values."""
        return q + table[0].type_as(q), k + table[1].type_as(k), v
