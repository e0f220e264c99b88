"""Output layers that predict tokens.

BERT, Devlin et al., arXiv 1810.04805; RoBERTa, Liu et al., arXiv 1907.11692.
"""

from typing import Optional

import torch.nn.functional as F
from fairseq.models.roberta.model import RobertaLMHead
from torch import Tensor, nn


class MaskedLMHead(RobertaLMHead):
    """Dense, activation, norm, projection to the vocabulary (BERT section 3.1).

    Args:
        embed_dim: C.
        size: E, the size of a token embedding.
        vocabulary: V.
        activation_fn: name of the activation.
        weight: (V, E), or None to create one.
    """

    def __init__(
        self,
        embed_dim: int,
        size: int,
        vocabulary: int,
        activation_fn: str,
        weight: Optional[Tensor],
    ) -> None:
        super().__init__(size, vocabulary, activation_fn, weight)
        if embed_dim != size:
            self.dense = nn.Linear(embed_dim, size)


class TiedHead(nn.Module):
    """The transposed token embedding alone, as in RoFormerV2 and GAU.

    Args:
        vocabulary: V.
        size: C, the size of a token embedding.
        weight: (V, C), or None to create one.
    """

    def __init__(self, vocabulary: int, size: int, weight: Optional[Tensor]) -> None:
        super().__init__()
        self.weight = nn.Linear(size, vocabulary, bias=False).weight if weight is None else weight

    def forward(self, features: Tensor, masked_tokens: Optional[Tensor] = None) -> Tensor:
        """Logits (B, T, V) of features (B, T, C), or (N, V) of N *masked_tokens* (B, T)."""
        return F.linear(features if masked_tokens is None else features[masked_tokens], self.weight)
