"""What a position encoding is: the four places where one can act, and their composition.

Letters used for shapes everywhere in this package: B batch, T query length, S key
length, H heads, D size of one head, C channels.

======================================  ==========================  =======================
place                                   examples                    computed
======================================  ==========================  =======================
``input``: added to the embeddings      sinusoidal, learned         once per forward
``rotation``: multiplies q and k        rotary                      table once, used a layer
``shared``: content-free logits         TUPE, T5 bias, ALiBi        once per forward
``layer``: content-dependent terms      Shaw, Transformer-XL        every layer
======================================  ==========================  =======================

Nothing here knows fairseq: an encoding sees positions, queries and keys, no model.
"""

from dataclasses import dataclass
from typing import Any, Callable, List, Optional, Tuple

import torch
from torch import Tensor, nn

from fairseq_posenc.errors import UsageError


@dataclass(frozen=True)
class Stack:
    """What an encoding may know of the encoder or decoder it serves.

    Args:
        side: ``"encoder"`` or ``"decoder"``, used in messages and flag names.
        num_heads: H.
        head_dim: D.
        causal: whether queries see only keys at or before their own position.
        max_positions: longest sequence the stack accepts, in tokens.
    """

    side: str
    num_heads: int
    head_dim: int
    causal: bool
    max_positions: int


class Rotation:
    """Multiplies queries and keys by something that depends on their position.

    It holds no parameters and no tensors, so it may be shared by all layers.

    Args:
        options: the model configuration, read for this encoding's own flags.
        stack: the encoder or decoder served.
    """

    def __init__(self, options: Any, stack: Stack) -> None:
        pass

    def table(self, positions: Tensor) -> Tensor:
        """Factors for *positions* (1|B, T), once per forward; complex, so never cast to half."""
        raise NotImplementedError

    def rotate(self, x: Tensor, table: Tensor) -> Tensor:
        """Apply *table* to queries or keys *x* (T, B, H, D); returns the same shape and dtype."""
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


class LayerTerms(nn.Module):
    """Content-dependent logits of one layer, with parameters of their own in every layer.

    Args:
        options: the model configuration, read for this encoding's own flags.
        stack: the encoder or decoder served.
    """

    def __init__(self, options: Any, stack: Stack) -> None:
        super().__init__()

    def forward(
        self, q: Tensor, k: Tensor, query_positions: Tensor, key_positions: Tensor
    ) -> Tensor:
        """Logits (B, H, T, S), already scaled.

        Args:
            q: queries (B, H, T, D).
            k: keys (B, H, S, D).
            query_positions: (1|B, T); the last T of the key positions.
            key_positions: (1|B, S).
        """
        raise NotImplementedError


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
        rotation: class that rotates queries and keys, if any.
        shared: class of content-free logits, if any.
        layer: class of content-dependent terms, if any.
        logit_scale: factor on 1/sqrt(D), for encodings whose terms share the variance.
        relative: True if shifting every position by the same amount changes nothing.
    """

    name: str
    paper: str
    summary: str
    flags: Optional[type] = None
    input: Optional[str] = None
    rotation: Optional[Callable[[Any, Stack], Rotation]] = None
    shared: Optional[Callable[[Any, Stack], SharedBias]] = None
    layer: Optional[Callable[[Any, Stack], LayerTerms]] = None
    logit_scale: float = 1.0
    relative: bool = True


class PositionEncoding:
    """The encodings of one stack, composed: at most one input table and one rotation.

    A plain object without parameters: the stack owns what :meth:`build_shared` returns,
    each attention layer owns what :meth:`build_layer` returns.

    Args:
        encodings: what ``--position-encoding`` named, in order.
        options: the model configuration with every encoding's flags.
        stack: the encoder or decoder served.

    Raises:
        UsageError: if two of *encodings* want the same exclusive place, or one of them
            cannot serve *stack*.
    """

    def __init__(self, encodings: List[Encoding], options: Any, stack: Stack) -> None:
        self.name = "+".join(e.name for e in encodings)
        self.options = options
        self.stack = stack
        self.input = self._only_one(encodings, "input")
        rotation = self._only_one(encodings, "rotation")
        self.rotation: Optional[Rotation] = rotation(options, stack) if rotation else None
        self.shared = [e for e in encodings if e.shared]
        self.layer = [e for e in encodings if e.layer]
        self.relative = all(e.relative for e in encodings)
        self.scale = stack.head_dim**-0.5
        for encoding in encodings:
            self.scale *= encoding.logit_scale

    def _only_one(self, encodings: List[Encoding], place: str) -> Any:
        users = [e for e in encodings if getattr(e, place) is not None]
        if len(users) > 1:
            names = " and ".join(e.name for e in users)
            raise UsageError(
                f"--position-encoding {self.name}: {names} both use the {place} place; keep one"
            )
        return getattr(users[0], place) if users else None

    def build_shared(self) -> Optional[nn.ModuleDict]:
        """Content-free terms by encoding name, to be owned by the stack; None if there are none."""
        terms = {e.name: e.shared(self.options, self.stack) for e in self.shared if e.shared}
        return nn.ModuleDict(terms) if terms else None

    def build_layer(self) -> Optional[nn.ModuleDict]:
        """Content-dependent terms by encoding name, to be owned by a layer; None if none."""
        terms = {e.name: e.layer(self.options, self.stack) for e in self.layer if e.layer}
        return nn.ModuleDict(terms) if terms else None

    def positions(self, length: int, padding_mask: Optional[Tensor], device: Any) -> Tensor:
        """Positions of a sequence, counted from the first real token where that matters.

        Relative encodings do not care where counting starts, so they share one row.

        Args:
            length: S.
            padding_mask: (B, S), True at padding, or None if there is none.
            device: where the result lives.

        Returns:
            (1, S) or (B, S), int64, from 0; padding gets the position of a neighbour.
        """
        if padding_mask is None or self.relative:
            return torch.arange(length, device=device).unsqueeze(0)
        return (torch.cumsum(~padding_mask, dim=1) - 1).clamp(min=0)

    def shared_bias(
        self,
        terms: Optional[nn.ModuleDict],
        query_positions: Tensor,
        key_positions: Tensor,
        like: Tensor,
    ) -> Optional[Tensor]:
        """Sum of the content-free logits, in the dtype of *like*, cast last.

        Args:
            terms: what :meth:`build_shared` returned.
            query_positions: (1|B, T).
            key_positions: (1|B, S).
            like: tensor whose dtype the result takes.

        Returns:
            (1|B, 1|H, T, S), or None without such terms.
        """
        if terms is None:
            return None
        logits = [term(query_positions, key_positions) for term in terms.values()]
        return sum(logits[1:], logits[0]).type_as(like)

    def rotation_table(self, query_positions: Tensor) -> Optional[Tensor]:
        """The rotation's table for (1|B, T) positions, or None without a rotation."""
        return self.rotation.table(query_positions) if self.rotation else None

    def rotate(self, q: Tensor, k: Tensor, table: Optional[Tensor]) -> Tuple[Tensor, Tensor]:
        """Rotate queries and keys (T, B, H, D) by *table*; without one they pass unchanged."""
        if self.rotation is None or table is None:
            return q, k
        return self.rotation.rotate(q, table), self.rotation.rotate(k, table)
