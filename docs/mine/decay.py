"""A penalty for distance, with a slope that depends on the query."""

from typing import Any, Optional

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairseq_posenc.encodings import Stack, register_encoding
from fairseq_posenc.encodings.content import Content, ContentBias


@register_encoding("decay", paper="", summary="a distance penalty, with a slope per query")
class QueryDecay(ContentBias):
    """Logits -softplus(q_i · u_h) |i - j|, with a learned u_h for each head of each layer."""

    takes_positions = True
    is_product = False  # factors on q·k, such as --log-length-scale, do not apply to these logits

    def __init__(self, options: Any, stack: Stack) -> None:
        super().__init__(options, stack)
        self.u = nn.Parameter(0.02 * torch.randn(stack.num_heads, stack.head_dim, 1))

    def forward(self, content: Content, vectors: Optional[Tensor] = None) -> Tensor:
        """Logits (B, H, T, S)."""
        slopes = F.softplus(content.q @ self.u)  # (B, H, T, 1)
        keys, queries = content.places.keys, content.places.queries
        distances = keys.unsqueeze(1) - queries.unsqueeze(2)  # (1|B, T, S)
        return -slopes * distances.abs().unsqueeze(1)
