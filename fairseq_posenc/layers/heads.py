"""Output layers: the prediction of tokens, classifiers, and the span boundary objective.

BERT, Devlin et al., arXiv 1810.04805; RoBERTa, Liu et al., arXiv 1907.11692; SpanBERT, Joshi et al.
2020, arXiv 1907.10529, section 3.2; ModernBERT, Warner et al. 2024, arXiv 2412.13663.
"""

from dataclasses import dataclass
from typing import Any, Optional, Tuple

import torch
import torch.nn.functional as F
from fairseq.models.roberta.model import RobertaClassificationHead, RobertaLMHead
from torch import Tensor, nn

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.tensors import AT_LEAST_FLOAT32
from fairseq_posenc.flags.settings import setting

POOLERS = ("cls", "mean")


@dataclass
class ClassifierFlags:
    """Flags of classification heads, and of token heads."""

    pooler: Optional[str] = setting(
        "cls",
        "what classification heads read: cls, the first token; mean, the mean of all tokens",
        role="model",
        choices=POOLERS,
    )
    pooler_norm: Optional[bool] = setting(
        False,
        "classification and token heads are dense, activation, norm, projection, as in ModernBERT; "
        "else they have no norm, and token heads are the projection alone",
        role="model",
    )


class MaskedLMHead(RobertaLMHead):
    """Dense, activation, norm, projection to the vocabulary (BERT section 3.1).

    Args:
        embed_dim: C.
        size: E, the size of a token embedding.
        vocabulary: V.
        activation_fn: name of the activation.
        weight: (V, E).
    """

    def __init__(
        self, embed_dim: int, size: int, vocabulary: int, activation_fn: str, weight: Tensor
    ) -> None:
        super().__init__(size, vocabulary, activation_fn, weight)
        if embed_dim != size:
            self.dense = nn.Linear(embed_dim, size)


class TiedHead(nn.Module):
    """The transposed token embedding alone, as in RoFormerV2 and GAU.

    Args:
        weight: (V, C).
    """

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, features: Tensor, masked_tokens: Optional[Tensor] = None) -> Tensor:
        """Logits (B, T, V) of features (B, T, C), or (N, V) of N *masked_tokens* (B, T)."""
        return F.linear(features if masked_tokens is None else features[masked_tokens], self.weight)


def mean_of(features: Tensor, real: Tensor) -> Tensor:
    """The mean of the features of real tokens, in place of the first token's, (B, 1, C).

    >>> mean_of(torch.tensor([[[2.0], [4.0], [9.0]]]), torch.tensor([[True, True, False]]))
    tensor([[[3.]]])

    Args:
        features: (B, T, C).
        real: (B, T), False at padding.
    """
    wide = features.to(AT_LEAST_FLOAT32[features.dtype])  # a sum may leave the range of float16
    weights = real.unsqueeze(-1).type_as(wide)
    mean = (wide * weights).sum(1, keepdim=True) / weights.sum(1, keepdim=True).clamp(min=1)
    return mean.type_as(features)


def refuse_tokens(head: nn.Module, inputs: Tuple[Tensor, ...]) -> None:
    """Refuse features of several tokens, of which a head after a mean would take the first.

    Args:
        head: the head that they are given to.
        inputs: the features (B, T, C).

    Raises:
        UsageError: T is not 1.
    """
    if inputs[0].size(1) != 1:
        raise UsageError(
            "--pooler mean: this head reads the mean of the tokens, which the model computes; call "
            "model(tokens, classification_head_name=NAME) in place of the head, and predict of "
            "fairseq_posenc.from_pretrained in place of fairseq's"
        )


class NormedHead(RobertaClassificationHead):
    """Dense, activation, norm, projection, of the first token or of all.

    Args:
        by_token: a token classifier.
        arguments: passed to fairseq's head, which has no norm.
    """

    def __init__(self, by_token: bool, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.by_token = by_token
        self.norm = nn.LayerNorm(self.dense.out_features)

    @property
    def out_features(self) -> int:
        """The number of classes."""
        return int(self.out_proj.out_features)

    def forward(self, features: Tensor, **kwargs: object) -> Tensor:
        """Logits (B, N) of features (B, T, C), or (B, T, N)."""
        x = features if self.by_token else features[:, 0]
        x = self.norm(self.activation_fn(self.dense(self.dropout(x))))
        return self.out_proj(self.dropout(x))


#: size and number of the embeddings of positions within a span (section 4.2); tokens beyond the
#: last share it
POSITION_SIZE, POSITIONS = 200, 64


class SpanBoundaryHead(nn.Module):
    """Predicts the tokens of spans from the tokens before and after the span.

    Two layers with GELU and layer norm read the features x_{s-1} and x_{e+1} of these two tokens,
    and an embedding of the position within the span, i - s + 1; the products of their output with
    the token embeddings are the logits.

    Args:
        embed_dim: C.
        size: E, the size of a token embedding.
    """

    def __init__(self, embed_dim: int, size: int) -> None:
        super().__init__()
        self.positions = nn.Embedding(POSITIONS, POSITION_SIZE)
        self.layers = nn.Sequential(
            nn.Linear(2 * embed_dim + POSITION_SIZE, embed_dim),
            nn.GELU(),
            nn.LayerNorm(embed_dim),
            nn.Linear(embed_dim, size),
            nn.GELU(),
            nn.LayerNorm(size),
        )

    def forward(self, features: Tensor, spans: Tensor, embedding: Tensor) -> Tensor:
        """Logits (N, V) of the N tokens of spans, in the order of ``features[spans]``.

        Args:
            features: (B, T, C).
            spans: (B, T), True for tokens of spans, which lie between two tokens that are in none.
            embedding: the embedding of the tokens, (V, E).
        """
        row, column = spans.nonzero(as_tuple=True)
        before, after = (index[row, column] for index in boundaries(spans))
        position = (column - before - 1).clamp(max=POSITIONS - 1)
        inputs = features[row, before], features[row, after], self.positions(position)
        return F.linear(self.layers(torch.cat(inputs, dim=-1)), embedding)


def boundaries(spans: Tensor) -> Tuple[Tensor, Tensor]:
    """The last token before each token, and the first after it, that is in no span.

    Args:
        spans: (B, T), True for tokens of spans.

    Returns:
        two numbers of tokens (B, T); undefined where there is no such token.
    """
    length = spans.size(1)
    numbers = torch.arange(length, device=spans.device)
    before = numbers.masked_fill(spans, 0).cummax(dim=1)[0]
    after = numbers.masked_fill(spans, length - 1).flip(1).cummin(dim=1)[0].flip(1)
    return before, after
