"""Transformer-XL's relative positions: keys from sinusoids of the distance, and two query biases.

Dai et al., arXiv 1901.02860, section 3.3 (RoFormer Eq. 34), with one u and one v per head:

    α_ij = 1/√D · (q_i·k_j + q_i·(r_{i-j} W_kR) + u·k_j + v·(r_{i-j} W_kR))
    r_{d,2t} = sin(d / 10000^{2t/C}),  r_{d,2t+1} = cos(…)

Every layer has its own W_kR, u and v.  ``--memory-length`` adds segment-level recurrence.
"""

from typing import Optional, cast

import torch
from torch import Tensor, nn

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.encodings.base import Stack
from fairseq_posenc.encodings.content import Content, ContentBias, DistanceVectors
from fairseq_posenc.encodings.distance import relative_products, sinusoids
from fairseq_posenc.encodings.registry import register_encoding
from fairseq_posenc.flags.options import Options


class Sinusoids(DistanceVectors):
    """r for every distance, query minus key, float32, without parameters."""

    def __init__(self, options: Options, stack: Stack) -> None:
        super().__init__(options, stack)
        self.channels = stack.num_heads * stack.head_dim

    @classmethod
    def check(cls, options: Options, stack: Stack) -> None:
        """Refuse an odd number of channels."""
        channels = stack.num_heads * stack.head_dim
        if channels % 2:
            raise UsageError(
                f"--position-encoding transformer_xl: {channels} channels of the {stack.side} are "
                "an odd number; sines and cosines need an even number"
            )

    def forward(self, distances: Tensor) -> Tensor:
        """Vectors (N, C) of distances (N), key minus query."""
        return sinusoids(-distances, self.channels).float()


@register_encoding(
    "transformer_xl",
    paper="Dai et al. 2019, arXiv 1901.02860",
    summary="projected sinusoids of the distance as keys, and two learned biases as queries",
    distances=Sinusoids,
)
class TransformerXLBias(ContentBias):
    """(q_i + v)·(r_{i-j} W_kR) + u·k_j, over √D."""

    takes_positions = True

    def __init__(self, options: Options, stack: Stack) -> None:
        super().__init__(options, stack)
        channels = stack.num_heads * stack.head_dim
        self.proj = nn.Linear(channels, channels, bias=False)  # W_kR
        self.u = nn.Parameter(torch.empty(stack.num_heads, 1, stack.head_dim))
        self.v = nn.Parameter(torch.empty(stack.num_heads, 1, stack.head_dim))
        for parameter in (self.proj.weight, self.u, self.v):
            nn.init.normal_(parameter, std=0.02)  # as in the released code

    def project(self, vectors: Tensor) -> Tensor:
        """r W_kR by head, (H, N, D), for *vectors* r (N, C)."""
        return self.proj(vectors).view(vectors.size(0), *self.u.shape[::2]).transpose(0, 1)

    def forward(self, content: Content, vectors: Optional[Tensor] = None) -> Tensor:
        """Logits (B, H, T, S); arguments as in :class:`ContentBias`."""
        k, scale, r = content.k, content.scale, cast(Tensor, vectors)
        to_words = torch.matmul(self.u * scale, k.transpose(-2, -1))  # (B, H, 1, S)
        queries = (content.q + self.v) * scale
        return relative_products(queries, r, k.size(2), content.distances) + to_words
