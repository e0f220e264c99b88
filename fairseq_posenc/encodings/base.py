"""What a position encoding is: the four places where one can act, and their composition.

Letters used for shapes everywhere in this package: B batch, T query length, S key
length, H heads, D size of one head, C channels.

======================================  ==========================  =======================
place                                   examples                    computed
======================================  ==========================  =======================
``input``: added to the embeddings      sinusoidal, learned         once per forward
``query_key``: changes q and k          rotary, BERT-A^d            table once, used a layer
``shared``: content-free logits         TUPE, T5 bias, ALiBi        once per forward
``layer``: content-dependent terms      Shaw, Transformer-XL,       every layer
                                        DeBERTa
======================================  ==========================  =======================

Nothing here knows fairseq: an encoding sees positions, queries and keys, no model.
"""

from dataclasses import dataclass
from typing import Any, Callable, Optional, Tuple

from torch import Tensor, nn


@dataclass(frozen=True)
class Stack:
    """What an encoding may know of the encoder or decoder it serves.

    Args:
        side: ``"encoder"`` or ``"decoder"``, used in messages and flag names.
        num_heads: H.
        head_dim: D; in linear attention the features of a head, if they are what is rotated.
        causal: whether queries see only keys at or before their own position.
        max_positions: longest sequence the stack accepts, in tokens.
        has_cls: whether its input starts with a [CLS] token.
        keeps_products: whether its attention sees queries and keys by their products alone.
    """

    side: str
    num_heads: int
    head_dim: int
    causal: bool
    max_positions: int
    has_cls: bool = False
    keeps_products: bool = True


class QueryKeyMap(nn.Module):
    """Changes queries and keys by something that depends on their position.

    One object serves all layers of a stack, which owns its parameters, if it has any.

    Args:
        options: the model configuration, read for this encoding's own flags.
        stack: the encoder or decoder served.
    """

    #: whether it only turns vectors, so that linear attention can apply it to features, too
    keeps_norm = False

    def __init__(self, options: Any, stack: Stack) -> None:
        super().__init__()
        self.relative = True  # whether shifting every position by the same amount changes nothing

    def check_length(self, length: int) -> None:
        """Called once per forward with S; says what is worth knowing of sequences so long."""

    def table(self, positions: Tensor) -> Tensor:
        """What :meth:`forward` needs of *positions* (1|B, T), once per forward."""
        raise NotImplementedError

    def forward(self, q: Tensor, k: Tensor, v: Tensor, table: Tensor) -> Tuple[Tensor, ...]:
        """Queries, keys and values (T, B, H, D) with *table* in them, shape and dtype kept."""
        raise NotImplementedError


class SharedBias(nn.Module):
    """Content-free logits, shared by all layers of a stack and owned by the stack.

    Args:
        options: the model configuration, read for this encoding's own flags.
        stack: the encoder or decoder served.
    """

    def __init__(self, options: Any, stack: Stack) -> None:
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

    def __init__(self, options: Any, stack: Stack) -> None:
        super().__init__()

    def forward(self, distances: Tensor) -> Tensor:
        """Vectors (N, H·D) of *distances* (N), int64, key minus query, in tokens."""
        raise NotImplementedError


class LayerTerms(nn.Module):
    """Content-dependent terms of one layer, with parameters of their own in every layer.

    Args:
        options: the model configuration, read for this encoding's own flags.
        stack: the encoder or decoder served.
    """

    def __init__(self, options: Any, stack: Stack) -> None:
        super().__init__()
        self.needs_weights = False  # whether values() has something to say

    def project(self, vectors: Tensor) -> Tensor:
        """What :meth:`forward` needs of the encoding's distance vectors.

        While decoding, the result is kept from step to step.

        Args:
            vectors: (N, H·D), from :class:`DistanceVectors`.

        Returns:
            (…, N, D or H·D); here *vectors* as they are.
        """
        return vectors

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        scale: float,
        query_positions: Tensor,
        key_positions: Tensor,
        vectors: Optional[Tensor] = None,
    ) -> Tensor:
        """Logits (B, H, T, S), scaled.

        Args:
            q: queries (B, H, T, D), without anything that other encodings do to them.
            k: keys (B, H, S, D), likewise.
            scale: factor on q·k, which all products here take, too.
            query_positions: (1|B, T); the last T of the key positions.
            key_positions: (1|B, S).
            vectors: what :meth:`project` returned, for all distances from -n to n with some
                n ≥ S - 1; None if the encoding has no :class:`DistanceVectors`.
        """
        raise NotImplementedError

    def values(
        self, weights: Tensor, query_positions: Tensor, key_positions: Tensor
    ) -> Optional[Tensor]:
        """What the attention weights give beside the mean of the values; here nothing.

        Args:
            weights: (B, H, T, S), after dropout.
            query_positions: (1|B, T).
            key_positions: (1|B, S).

        Returns:
            (B, H, T, D) or None.
        """
        return None


@dataclass(frozen=True)
class Encoding:
    """One registered encoding: where it acts, its flags and where it is described.

    Args:
        name: what ``--position-encoding`` takes.
        paper: authors, year and arXiv number or venue, for ``python -m fairseq_posenc list``.
        summary: one clause for the same table.
        flags: dataclass whose fields are this encoding's flags; every field is optional,
            starts with None and carries its default in ``metadata["default"]``.
        input: name of fairseq's table added to the embeddings, if any.
        query_key: class that changes queries and keys, if any.
        shared: class of content-free logits, if any.
        layer: class of content-dependent terms, if any.
        distances: class of the vectors that those terms project in every layer, if any.
        logit_scale: factor on 1/sqrt(D), for encodings whose terms share the variance.
        relative: True if shifting every position by the same amount changes nothing.
        bounded: True if there is a table of positions that cannot grow.
    """

    name: str
    paper: str
    summary: str
    flags: Optional[type] = None
    input: Optional[str] = None
    query_key: Optional[Callable[[Any, Stack], QueryKeyMap]] = None
    shared: Optional[Callable[[Any, Stack], SharedBias]] = None
    layer: Optional[Callable[[Any, Stack], LayerTerms]] = None
    distances: Optional[Callable[[Any, Stack], DistanceVectors]] = None
    logit_scale: float = 1.0
    relative: bool = True
    bounded: bool = False
