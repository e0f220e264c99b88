"""Several encodings at once, as ``--position-encoding a+b`` names them, in one stack."""

from typing import Any, List, Optional, Tuple

import torch
from torch import Tensor, nn

from fairseq_posenc.encodings.base import Encoding, QueryKeyMap, Stack
from fairseq_posenc.encodings.distance import all_distances
from fairseq_posenc.encodings.shared import SharedTerms
from fairseq_posenc.encodings.terms import PositionTerms
from fairseq_posenc.errors import UsageError


class PositionEncoding:
    """The encodings of one stack, composed: at most one input table and one map of q and k.

    A plain object without parameters: the stack owns :attr:`query_key` and what
    :meth:`build_shared` and :meth:`build_distances` return, each attention layer owns what
    :meth:`build_layer` returns.

    Args:
        encodings: what ``--position-encoding`` named, in order.
        options: the model configuration with every encoding's flags.
        stack: the encoder or decoder served.

    Raises:
        UsageError: if two of *encodings* want the same exclusive place, one of them cannot serve
            *stack*, or there are no content-free logits where [CLS] is to be untied.
    """

    def __init__(self, encodings: List[Encoding], options: Any, stack: Stack) -> None:
        self.name = "+".join(e.name for e in encodings)
        self.options = options
        self.stack = stack
        self.input = self._only_one(encodings, "input")
        query_key = self._only_one(encodings, "query_key")
        self.query_key: Optional[QueryKeyMap] = query_key(options, stack) if query_key else None
        self.shared = [e for e in encodings if e.shared]
        self.layer = [e for e in encodings if e.layer]
        self.distances = [e for e in encodings if e.distances]
        if options.untie_cls:
            self._check_cls()
        shifts = self.query_key is None or (self.query_key.relative and stack.keeps_products)
        self.relative = shifts and not options.untie_cls and all(e.relative for e in encodings)
        self.bounded = any(e.bounded for e in encodings)
        self.scale = stack.head_dim**-0.5
        for encoding in encodings:
            self.scale *= encoding.logit_scale

    def _check_cls(self) -> None:
        if not self.shared:
            raise UsageError(
                f"--untie-cls: --position-encoding {self.name} has no content-free logits to "
                "reset; drop the flag, or add one that has, such as tupe, t5 or alibi"
            )
        if not self.stack.has_cls:
            raise UsageError(
                f"--untie-cls: the input of this {self.stack.side} does not start with a [CLS] "
                "token; drop the flag, or use a masked language model (with --init-token 0 where "
                "the task has that flag)"
            )

    def _only_one(self, encodings: List[Encoding], place: str) -> Any:
        users = [e for e in encodings if getattr(e, place) is not None]
        if len(users) > 1:
            names = " and ".join(e.name for e in users)
            raise UsageError(
                f"--position-encoding {self.name}: {names} both use the {place} place; keep one"
            )
        return getattr(users[0], place) if users else None

    def build_shared(self) -> Optional[SharedTerms]:
        """Content-free terms by encoding name, to be owned by the stack; None if there are none."""
        terms = {e.name: e.shared(self.options, self.stack) for e in self.shared if e.shared}
        return SharedTerms(terms, self.options, self.stack) if terms else None

    def build_layer(self) -> Optional[PositionTerms]:
        """Content-dependent terms by encoding name, to be owned by a layer; None if none."""
        terms = {e.name: e.layer(self.options, self.stack) for e in self.layer if e.layer}
        return PositionTerms(terms, [e.name for e in self.distances]) if terms else None

    def build_distances(self) -> Optional[nn.ModuleDict]:
        """Distance vectors by encoding name, to be owned by the stack; None if there are none."""
        own = {e.name: e.distances(self.options, self.stack) for e in self.distances if e.distances}
        return nn.ModuleDict(own) if own else None

    def positions(self, length: int, padding_mask: Optional[Tensor], device: Any) -> Tensor:
        """Positions of a sequence, counted from the first real token where that matters.

        Relative encodings do not care where counting starts, and with padding on the right it
        starts at the same place for all; then they share one row.

        Args:
            length: S.
            padding_mask: (B, S), True at padding, or None if there is none.
            device: where the result lives.

        Returns:
            (1, S) or (B, S), int64, from 0; padding gets the position of a neighbour.

        Raises:
            UsageError: if a table of positions is shorter than the sequence.
        """
        if self.bounded and length > self.stack.max_positions:
            raise UsageError(
                f"--position-encoding {self.name}: a sequence of {length} tokens is longer than "
                f"the {self.stack.side}'s table of {self.stack.max_positions} positions; shorten "
                "it, or train with more positions or with an encoding that has no table"
            )
        if self.query_key is not None:
            self.query_key.check_length(length)
        if padding_mask is None or self.relative or not padding_mask[:, 0].any():
            return torch.arange(length, device=device).unsqueeze(0)
        return (torch.cumsum(~padding_mask, dim=1) - 1).clamp(min=0)

    def shared_bias(
        self,
        terms: Optional[nn.Module],
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
        return None if terms is None else terms(query_positions, key_positions).type_as(like)

    def distance_vectors(
        self, vectors: Optional[nn.ModuleDict], query_length: int, key_length: int, like: Tensor
    ) -> Optional[Tensor]:
        """Vectors of all distances in a sequence, in the dtype of *like*, cast last.

        Args:
            vectors: what :meth:`build_distances` returned.
            query_length: T.
            key_length: S.
            like: tensor whose dtype and device the result takes.

        Returns:
            (N, L, H·D) for N encodings and L distances, from -n to n with some n ≥ S - 1; or None.
        """
        if vectors is None:
            return None
        distances = all_distances(query_length, key_length, like.device)
        return torch.stack([own(distances).type_as(like) for own in vectors.values()])

    def table(self, query_positions: Tensor) -> Optional[Tensor]:
        """What the map of q and k needs of (1|B, T) positions, or None without such a map."""
        return self.query_key.table(query_positions) if self.query_key else None

    def map(self, q: Tensor, k: Tensor, v: Tensor, table: Optional[Tensor]) -> Tuple[Tensor, ...]:
        """Queries, keys and values (T, B, H, D) with *table* in them; unchanged without one."""
        if self.query_key is None or table is None:
            return q, k, v
        return self.query_key(q, k, v, table)
