"""What a position encoding is: the five hooks by which one can act.

Letters used for shapes everywhere in this package: B batch, T query length, S key
length, H heads, D size of one head, C channels.

======================================  ==========================  =======================
hook                                    examples                    computed
======================================  ==========================  =======================
:class:`InputTable`                     sinusoidal, learned         once per forward
:class:`QKVTransform`                   rotary, BERT-A^d            table once per forward,
                                                                    applied in every layer
:class:`SharedBias`                     TUPE, T5 bias, ALiBi        once per forward
:class:`ContentBias`                    Shaw, Transformer-XL,       in every layer
                                        DeBERTa
:class:`DistanceVectors`                Transformer-XL, DeBERTa     once per forward
======================================  ==========================  =======================

Nothing here knows fairseq: an encoding sees positions, queries and keys, no model.
"""

from dataclasses import dataclass
from typing import Any, Dict, Optional, Tuple, Type, cast

import torch
from torch import Tensor, nn

from fairseq_posenc.options import Options


@dataclass(frozen=True)
class Stack:
    """What an encoding may know of the encoder or decoder it serves.

    Args:
        side: ``"encoder"`` or ``"decoder"``, used in messages and flag names.
        num_heads: H.
        head_dim: D; in linear attention the features of a head, if those are rotated.
        causal: whether queries see only keys at or before their own position.
        max_positions: longest sequence the stack accepts, in tokens.
        has_cls: whether its input starts with a [CLS] token.
        relative_after_rotation: whether rotating queries and keys keeps attention a function of
            their distance; a feature map applied after the rotation does not.
        size_flags: the flags that set *head_dim*, for error messages.
    """

    side: str
    num_heads: int
    head_dim: int
    causal: bool
    max_positions: int
    has_cls: bool = False
    relative_after_rotation: bool = True
    size_flags: str = "the number of heads"


class InputTable:
    """Vectors added to the embeddings; fairseq's own ``embed_positions`` computes them."""

    hook = "input"
    #: which of fairseq's tables: learned, sinusoidal, or None
    table: Optional[str] = None


class QKVTransform(nn.Module):
    """Changes queries, keys and maybe values by something that depends on their position.

    One object serves all layers of a stack, which owns its parameters, if it has any.

    Args:
        options: the model configuration, read for this encoding's own flags.
        stack: the encoder or decoder served.
    """

    hook = "transform"
    #: whether it is a linear map of one vector at a time, so that linear attention can apply it
    #: to features as well
    applies_to_features = False

    def __init__(self, options: Options, stack: Stack) -> None:
        super().__init__()
        self.relative = True  # whether shifting every position by the same amount changes nothing

    @classmethod
    def check_features(cls, options: Options) -> Optional[str]:
        """A flag and the reason why features cannot be transformed under *options*, or None."""
        return None

    @classmethod
    def changes_values(cls, options: Options) -> Optional[str]:
        """The flag under which values are transformed, too, if *options* have it on, or None."""
        return None

    def check_length(self, length: int) -> None:
        """Called once per forward with S; may warn of sequences longer than in training."""

    def table(self, positions: Tensor) -> Tensor:
        """What :meth:`forward` needs for *positions* (1|B, T), once per forward."""
        raise NotImplementedError

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, table: Tensor
    ) -> Tuple[Tensor, Tensor, Tensor]:
        """Transformed queries, keys and values (T, B, H, D), shape and dtype kept."""
        raise NotImplementedError


class SharedBias(nn.Module):
    """Content-free logits, shared by all layers of a stack and owned by the stack.

    Args:
        options: the model configuration, read for this encoding's own flags.
        stack: the encoder or decoder served.
    """

    hook = "shared"

    def __init__(self, options: Options, stack: Stack) -> None:
        super().__init__()

    def forward(self, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        """Logits (1|B, 1|H, T, S) for positions (1|B, T) and (1|B, S), added to q·k unscaled."""
        raise NotImplementedError

    def cls_logits(self) -> Optional[Tensor]:
        """θ1 and θ2 (2, H) of TUPE Eq. 9, if the encoding has a form of its own for them."""
        return None


class DistanceVectors(nn.Module):
    """A vector for every distance, shared by all layers of a stack and owned by the stack.

    Args:
        options: the model configuration, read for this encoding's own flags.
        stack: the encoder or decoder served.
    """

    def __init__(self, options: Options, stack: Stack) -> None:
        super().__init__()

    def forward(self, distances: Tensor) -> Tensor:
        """Vectors (N, H·D) of *distances* (N), int64, key minus query, in tokens."""
        raise NotImplementedError


class Content:
    """What content-dependent terms of one layer may look at; what nobody asks for costs nothing.

    Args:
        x: input of the attention for the new tokens, (T, B, C).
        q: queries (B, H, T, D), without anything that other encodings do to them.
        k: keys (B, H, S, D), likewise.
        scale: factor on q·k, which all products of the terms take, too.
        query_positions: (1|B, T); the last T of the key positions.
        key_positions: (1|B, S).
        padding_mask: (B, S), True at padding, or None if there is none.
    """

    def __init__(
        self,
        x: Tensor,
        q: Tensor,
        k: Tensor,
        scale: float,
        query_positions: Optional[Tensor],
        key_positions: Optional[Tensor],
        padding_mask: Optional[Tensor] = None,
    ) -> None:
        self.x, self.q, self.k, self.scale = x, q, k, scale
        self.query_positions = cast(Tensor, query_positions)
        self.key_positions = cast(Tensor, key_positions)
        self.padding_mask = padding_mask
        self._products: Optional[Tensor] = None

    @property
    def products(self) -> Tensor:
        """scale · q kᵀ, (B, H, T, S), computed when first asked for and once a layer."""
        if self._products is None:
            self._products = torch.matmul(self.q * self.scale, self.k.transpose(-2, -1))
        return self._products


class ContentBias(nn.Module):
    """Content-dependent terms of one layer, with parameters of their own in every layer.

    Args:
        options: the model configuration, read for this encoding's own flags.
        stack: the encoder or decoder served.
    """

    hook = "content"

    def __init__(self, options: Options, stack: Stack) -> None:
        super().__init__()
        self.needs_weights = False  # whether relative_values() returns anything

    @classmethod
    def changes_values(cls, options: Options) -> Optional[str]:
        """The flag under which :meth:`relative_values` returns anything, if it is on, or None."""
        return None

    def project(self, vectors: Tensor) -> Tensor:
        """What :meth:`forward` needs of the encoding's distance vectors.

        While decoding, the result is kept from step to step.

        Args:
            vectors: (N, H·D), from :class:`DistanceVectors`.

        Returns:
            (…, N, D or H·D); here *vectors* as they are.
        """
        return vectors

    def forward(self, content: Content, vectors: Optional[Tensor] = None) -> Tensor:
        """Logits (B, H, T, S), scaled.

        Args:
            content: queries, keys, positions, and what else there is to look at.
            vectors: what :meth:`project` returned, for all distances from -n to n with some
                n ≥ S - 1; None if the encoding has no :class:`DistanceVectors`.
        """
        raise NotImplementedError

    def relative_values(self, content: Content, weights: Tensor) -> Optional[Tensor]:
        """Output that the attention weights give in addition to the mean of the values.

        Args:
            content: as for :meth:`forward`.
            weights: (B, H, T, S), after dropout.

        Returns:
            (B, H, T, D) or None; here None.
        """
        return None


@dataclass(frozen=True)
class Encoding:
    """One registered encoding: its hooks, its flags and where it is described.

    Args:
        name: what ``--position-encoding`` takes.
        paper: authors, year and arXiv number or venue, for ``fairseq-posenc list``.
        summary: one clause for the same table.
        flags: dataclass of its own flags, if any.
        hooks: its class for each hook it uses, by :attr:`hook` of the base class.
        distances: class of the vectors that its content-dependent terms project, if any.
        logit_scale: factor on 1/sqrt(D), for encodings whose terms share the variance.
        relative: True if shifting every position by the same amount changes nothing.
        bounded: True if there is a table of positions that cannot grow.
        formerly: an older name, in command lines and checkpoints.
    """

    name: str
    paper: str
    summary: str
    flags: Optional[type]
    hooks: Dict[str, Any]
    distances: Optional[Type[DistanceVectors]] = None
    logit_scale: float = 1.0
    relative: bool = True
    bounded: bool = False
    formerly: Optional[str] = None

    @property
    def input(self) -> Optional[str]:
        """Name of fairseq's table that is added to the embeddings, or None."""
        return self.hooks["input"].table if "input" in self.hooks else None

    @property
    def transform(self) -> Optional[Type[QKVTransform]]:
        """Class that transforms queries and keys, or None."""
        return self.hooks.get("transform")

    @property
    def shared(self) -> Optional[Type[SharedBias]]:
        """Class of content-free logits, or None."""
        return self.hooks.get("shared")

    @property
    def content(self) -> Optional[Type[ContentBias]]:
        """Class of content-dependent terms, or None."""
        return self.hooks.get("content")
