"""Output layers that predict tokens.

BERT, Devlin et al., arXiv 1810.04805; RoBERTa, Liu et al., arXiv 1907.11692.
"""

import logging
from typing import Dict, Optional

import torch.nn.functional as F
from fairseq.models.roberta.model import RobertaLMHead
from torch import Tensor, nn

logger = logging.getLogger(__name__)

#: The classification head of ``--task masked_lm_pairs``: are the texts of a pair as in the corpus?
RELATION_HEAD = "sentence_relation"


def leave_out_relation_head(state_dict: Dict[str, Tensor], name: str) -> None:
    """Remove the parameters of :data:`RELATION_HEAD`, in place, for a model that does not need it.

    Args:
        state_dict: parameters of a checkpoint.
        name: of the model in it, empty if it is the whole.
    """
    prefix = f"{name}." if name else ""
    prefix += f"classification_heads.{RELATION_HEAD}."
    if [state_dict.pop(key) for key in list(state_dict) if key.startswith(prefix)]:
        logger.info("left out %s, which only --pairs needs", prefix[:-1])


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
