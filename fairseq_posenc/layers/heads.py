"""Output layers: token prediction, classification heads, and heads added by pre-training tasks.

BERT, Devlin et al., arXiv 1810.04805; RoBERTa, Liu et al., arXiv 1907.11692; ModernBERT, Warner et
al. 2024, arXiv 2412.13663.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Dict, Optional, Sequence, Tuple

import torch.nn.functional as F
from fairseq.models.roberta.model import RobertaClassificationHead, RobertaLMHead
from torch import Tensor, nn

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.tensors import AT_LEAST_FLOAT32
from fairseq_posenc.flags.registry import ClassRegistry
from fairseq_posenc.flags.settings import setting


@dataclass
class ClassifierFlags:
    """Flags of classification heads, and of token heads."""

    pooler: Optional[str] = setting(
        "cls",
        "what classification heads read: cls, the first token; mean, the mean of all tokens",
        choices=("cls", "mean"),
    )
    pooler_norm: Optional[bool] = setting(
        False,
        "build classification and token heads from a dense layer, activation, norm and projection, "
        "as in ModernBERT; by default, there is no norm, and token heads are only a projection",
    )


class MaskedLMHead(RobertaLMHead):
    """Dense layer (C to E), activation, norm, projection *weight* (V, E) (BERT section 3.1)."""

    def __init__(
        self, embed_dim: int, size: int, vocabulary: int, activation_fn: str, weight: Tensor
    ) -> None:
        super().__init__(size, vocabulary, activation_fn, weight)
        if embed_dim != size:
            self.dense = nn.Linear(embed_dim, size)


class TiedHead(nn.Module):
    """Only a projection with the token embedding, *weight* (V, C), as in RoFormerV2 and GAU."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, features: Tensor, masked_tokens: Optional[Tensor] = None) -> Tensor:
        """Logits (B, T, V) of features (B, T, C), or (N, V) of N *masked_tokens* (B, T)."""
        return F.linear(features if masked_tokens is None else features[masked_tokens], self.weight)


def mean_of(features: Tensor, real: Tensor) -> Tensor:
    """The mean (B, 1, C) of the features (B, T, C) of the tokens in the mask *real* (B, T).

    >>> import torch
    >>> mean_of(torch.tensor([[[2.0], [4.0], [9.0]]]), torch.tensor([[True, True, False]]))
    tensor([[[3.]]])
    """
    wide = features.to(AT_LEAST_FLOAT32[features.dtype])  # sums can exceed the range of float16
    weights = real.unsqueeze(-1).type_as(wide)
    mean = (wide * weights).sum(1, keepdim=True) / weights.sum(1, keepdim=True).clamp(min=1)
    return mean.type_as(features)


def refuse_tokens(head: nn.Module, inputs: Tuple[Tensor, ...]) -> None:
    """Refuse features (B, T, C) of several tokens in a head that expects their mean."""
    if inputs[0].size(1) != 1:
        raise UsageError(
            "--pooler mean: this head reads the mean of the tokens, which the model computes; call "
            "model(tokens, classification_head_name=NAME) instead of the head, and predict of "
            "fairseq_posenc.from_pretrained instead of fairseq's predict"
        )


class NormedHead(RobertaClassificationHead):
    """Dense layer, activation, norm, projection, for the first token or, if *by_token*, for each.

    The other *arguments* are those of the base class, a head of fairseq without a norm.
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
        """Logits (B, N) of features (B, T, C); (B, T, N) if *by_token*."""
        x = features if self.by_token else features[:, 0]
        x = self.norm(self.activation_fn(self.dense(self.dropout(x))))
        return self.out_proj(self.dropout(x))


#: For each module that only pre-training needs and fine-tuning omits: the flag that adds it.
PRETRAINING: Dict[str, str] = {}


class StateHead:
    """A head for pre-training that reads the states between the layers.

    A criterion requests the output of the head by ``model(…, heads={name: inputs})``.
    """

    #: the name of the head's module in the model
    module: ClassVar[str]
    #: whether the head reads the states between all layers, or the last state alone
    reads_all: ClassVar[bool] = False

    def add(self, model: nn.Module) -> None:
        """Add the head's module, with new parameters, to *model*."""
        raise NotImplementedError

    def read(self, model: Any, states: Sequence[Tensor], **inputs: Any) -> Tensor:
        """The output of the head, which also reads *inputs* from the criterion.

        *states* are the input of the first layer and the outputs of all layers, (B, T, C) each, the
        last one after the final norm.  If no head reads all states, only the last one is passed.
        """
        raise NotImplementedError


HEADS = ClassRegistry("head")
#: Decorator that registers a subclass of :class:`StateHead` under the name that tasks use for it.
register_head = HEADS.register
