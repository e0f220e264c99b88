"""CoPE: contextual positions, for which the gates of a query decide which keys to count.

Golovneva, Wang, Weston, Sukhbaatar, arXiv 2405.18719, section 4.  In a causal stack each query
has a gate for every key up to itself.  Its distance to a key is the sum of gates from that key on:

    g_ij = σ(q_i · k_j)
    p_ij = Σ_{k=j}^{i} g_ik, at most p_max
    α_ij = 1/√D · q_i · (k_j + e[p_ij])

If p_ij is no integer, q_i · e[p_ij] is interpolated between the products of q_i with the vectors of
the integers below and above.  As in the authors' listing, q_i · k_j in the gates is divided by √D,
too; and every layer has a separate e, which all heads of the layer share.
"""

from dataclasses import dataclass
from typing import Optional

import torch
from torch import Tensor, nn

from fairseq_posenc.basics.tensors import AT_LEAST_FLOAT32
from fairseq_posenc.encodings.base import Stack, init_normal
from fairseq_posenc.encodings.content import Content, ContentBias
from fairseq_posenc.encodings.distance import distances
from fairseq_posenc.encodings.registry import register_encoding
from fairseq_posenc.flags.options import Options
from fairseq_posenc.flags.settings import setting


@dataclass
class CopeFlags:
    """The flag of CoPE."""

    cope_max_position: Optional[int] = setting(
        64,
        "largest contextual position, p_max; keys farther away share its vector",
        at_least=1,
        at_most=1_000_000,  # each position has a vector
    )


@register_encoding(
    "cope",
    paper="Golovneva et al. 2024, arXiv 2405.18719",
    summary="learned keys for contextual positions, which sum gates between query and key",
    flags=CopeFlags,
    causal_only="queries count only keys up to their own token",
)
class ContextualPositions(ContentBias):
    """q_i · e[p_ij] / √D; visible later keys have position 0."""

    def __init__(self, options: Options, stack: Stack) -> None:
        super().__init__(options, stack)
        self.max_position = int(options.cope_max_position)
        self.table = nn.Embedding(self.max_position + 1, stack.head_dim)  # e[0] … e[p_max]
        init_normal(self.table)

    def forward(self, content: Content, vectors: Optional[Tensor] = None) -> Tensor:
        """Logits (B, H, T, S); arguments as in :class:`ContentBias`."""
        products = torch.matmul(content.q * content.scale, self.table.weight.t())  # q · e / √D
        positions = self.positions(content)
        below = positions.detach().floor()
        part = (positions - below).type_as(products)
        rows = below.long()
        low = products.gather(-1, rows)
        high = products.gather(-1, (rows + 1).clamp(max=self.max_position))
        return low + part * (high - low)

    def positions(self, content: Content) -> Tensor:
        """p_ij, (B, H, T, S), between 0 and p_max; gates are summed in float32 or wider."""
        gates = content.products
        gates = gates.to(AT_LEAST_FLOAT32[gates.dtype]).sigmoid()
        hidden = distances(gates.size(2), gates.size(3), gates.device) > 0  # (T, S)
        if content.padding_mask is not None:
            hidden = hidden | content.padding_mask[:, None, None]
        gates = gates.masked_fill(hidden, 0.0)
        return gates.flip(-1).cumsum(dim=-1).flip(-1).clamp(max=self.max_position)
