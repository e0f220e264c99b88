"""DeBERTa's disentangled attention: content-to-position and position-to-content terms.

He, Liu, Gao, Chen, arXiv 2006.03654, Eq. 2 to 4:

    α_ij = 1/√(3D) · (q_i·k_j + q_i·(P_{δ(i,j)} W_kR) + k_j·(P_{δ(j,i)} W_qR))
    δ(i,j) = 0 where i - j ≤ -K,  2K - 1 where i - j ≥ K,  i - j + K between

The released code uses δ(i,j) in the third term, too, as does ``--deberta-released``; RoFormer
Eq. 37 is this variant without the scale.  As in the paper (section 3.1), all layers of a stack
share the table P of 2K rows, and each layer has its own W_kR and W_qR.
"""

from dataclasses import dataclass
from typing import Optional, cast

import torch
from torch import Tensor, nn

from fairseq_posenc.encodings.base import Stack, init_normal
from fairseq_posenc.encodings.content import Content, ContentBias, DistanceVectors
from fairseq_posenc.encodings.distance import relative_products, within_reach
from fairseq_posenc.encodings.registry import register_encoding
from fairseq_posenc.flags.options import Options
from fairseq_posenc.flags.settings import setting


@dataclass
class DebertaFlags:
    """Flags of disentangled attention."""

    deberta_max_distance: Optional[int] = setting(
        512,
        "clipping distance in tokens; longer distances share a vector (K in DeBERTa Eq. 3)",
        at_least=1,
        at_most=1_000_000,  # each distance has a vector
    )
    deberta_released: Optional[bool] = setting(
        False,
        "use δ(i,j), the distance seen from the query, in the position-to-content term, as the "
        "released code does; without the flag, δ(j,i), seen from the key, as in DeBERTa Eq. 4",
    )


class DistanceTable(DistanceVectors):
    """P_{δ(i,j)} for every distance."""

    def __init__(self, options: Options, stack: Stack) -> None:
        super().__init__(options, stack)
        self.max_distance = int(options.deberta_max_distance)
        self.table = nn.Embedding(2 * self.max_distance, stack.num_heads * stack.head_dim)
        init_normal(self.table)

    def forward(self, distances: Tensor) -> Tensor:
        """Vectors (N, C) of distances (N), key minus query."""
        reach = self.max_distance
        return self.table((-distances).clamp(-reach, reach - 1) + reach)


@register_encoding(
    "deberta",
    paper="He et al. 2021, arXiv 2006.03654",
    summary="content-to-position and position-to-content terms, separately projected",
    flags=DebertaFlags,
    distances=DistanceTable,
    logit_scale=3**-0.5,
)
class DebertaBias(ContentBias):
    """The content-to-position and the position-to-content term."""

    takes_positions = True

    def __init__(self, options: Options, stack: Stack) -> None:
        super().__init__(options, stack)
        self.head_dim = stack.head_dim
        self.released = bool(options.deberta_released)
        channels = stack.num_heads * stack.head_dim
        self.k_proj = nn.Linear(channels, channels, bias=False)  # W_kR
        self.q_proj = nn.Linear(channels, channels, bias=False)  # W_qR
        init_normal(self.k_proj, self.q_proj)

    def project(self, vectors: Tensor) -> Tensor:
        """P W_kR and P W_qR by head, (2, H, N, D), for rows *vectors* (N, C) of P."""
        from_key = vectors.flip(0) if self.released else vectors  # exchanges d and -d
        both = torch.stack((self.k_proj(vectors), self.q_proj(from_key)))
        return both.view(2, vectors.size(0), -1, self.head_dim).transpose(1, 2)

    def forward(self, content: Content, vectors: Optional[Tensor] = None) -> Tensor:
        """Logits (B, H, T, S); arguments as in :class:`ContentBias`."""
        q, k, scale, distances = content.q, content.k, content.scale, content.distances
        for_q, for_k = cast(Tensor, vectors)
        to_position = relative_products(q * scale, for_q, k.size(2), distances)
        if distances is None and q.size(2) == 1:  # a decoding step: one distance per key
            r = within_reach(for_k, k.size(2), 1).flip(-2)
            return to_position + torch.einsum("bhsd,hsd->bhs", k * scale, r).unsqueeze(2)
        # distances as seen from the keys
        distances = None if distances is None else -distances.transpose(-2, -1)
        to_content = relative_products(k * scale, for_k, q.size(2), distances)
        return to_position + to_content.transpose(-2, -1)
