"""The sum of a composition's content-free logits, in which [CLS] may be untied."""

from typing import Dict, Iterable, Optional, cast

import torch
from torch import Tensor, nn

from fairseq_posenc.encodings.base import DistanceBias, SharedBias, Stack
from fairseq_posenc.flags.options import Options


class SharedBiasSum(nn.ModuleDict):
    """Sum of the content-free terms of a stack, keyed by encoding name; [CLS] may be untied.

    TUPE, Ke, He, Liu, arXiv 2006.15595.  Content-free logits v_ij depend on positions only, so they
    are computed once per forward pass for all layers.  [CLS] is not a word and its position carries
    no information, so all logits that involve it can be reset (Eq. 9, with [CLS] at position 0):

        reset_θ(v, i, j) = θ1    from [CLS], i = 0 (to itself, too)
                           θ2    from others to [CLS], j = 0
                           v_ij  otherwise

    Args:
        terms: at least one.
        options: reads ``untie_cls`` and ``cls_reset``.
        stack: number of heads.
    """

    def __init__(self, terms: Dict[str, SharedBias], options: Options, stack: Stack) -> None:
        super().__init__(terms)
        self.untie_cls = bool(options.untie_cls)
        own = [term.cls_logits() is not None for term in terms.values()]
        enough = any(own) if options.cls_reset == "sum" else all(own)
        free = nn.Parameter(torch.zeros(2, stack.num_heads)) if not enough else None
        self.theta: Optional[nn.Parameter]
        self.register_parameter("theta", free if self.untie_cls else None)

    def forward(
        self, query_positions: Tensor, key_positions: Tensor, cls_first: bool = True
    ) -> Tensor:
        """Logits (1|B, 1|H, T, S).

        Args:
            query_positions: (1|B, T), the last T of the key positions.
            key_positions: (1|B, S).
            cls_first: whether position 0 is the first of every row, without padding before it.
        """
        if not self.untie_cls:
            return self._sum(query_positions, key_positions)
        if cls_first and key_positions.size(1) > 1:
            return self._beside_cls(query_positions, key_positions)
        total = self._sum(query_positions, key_positions)
        return self._reset(total, query_positions, key_positions)

    @property
    def distance_alone(self) -> bool:
        """True if all logits are a function of the distance alone."""
        terms = cast(Iterable[SharedBias], self.values())
        return not self.untie_cls and all(term.distance_alone for term in terms)

    def by_distance(self, distances: Tensor) -> Tensor:
        """Logits (H, N), float32, of *distances* (N), if they are a function of these alone."""
        terms = cast(Iterable[DistanceBias], self.values())
        logits = [term.logits_by_distance(distances).float() for term in terms]
        return torch.stack(logits).sum(dim=0)

    def without_content(self, positions: Tensor) -> Dict[str, Tensor]:
        """Logits (1, 1|H, T, T) for positions (1, T), by the names of each term and of the sum."""
        found = {name: term(positions, positions) for name, term in self.items()}
        if len(found) > 1 or self.untie_cls:
            untied = ", [CLS] untied" if self.untie_cls else ""
            found[" + ".join(found) + untied] = self(positions, positions)
        return found

    def at_pairs(
        self, query_positions: Tensor, key_positions: Tensor, reach: Optional[int] = None
    ) -> Tensor:
        """Logits (N, 1|H, T, S) of any positions (N, T) and (N, S); see :class:`SharedBias`."""
        terms = cast(Iterable[SharedBias], self.values())
        logits = [term.at_pairs(query_positions, key_positions, reach) for term in terms]
        total = sum(logits[1:], logits[0])
        return self._reset(total, query_positions, key_positions) if self.untie_cls else total

    def _reset(self, total: Tensor, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        """Logits (N, H, T, S) with those from and to position 0 replaced."""
        from_cls, to_cls = self._theta().to(total.dtype).view(2, 1, -1, 1, 1)
        total = torch.where((key_positions == 0)[:, None, None, :], to_cls, total)
        return torch.where((query_positions == 0)[:, None, :, None], from_cls, total)

    def _sum(self, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        logits = [term(query_positions, key_positions) for term in self.values()]
        return sum(logits[1:], logits[0])

    def _beside_cls(self, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        """Logits (1, H, T, S) of tokens other than [CLS], with a row and a column for it.

        Unlike a choice by position this needs no mask, and gradients are slices.
        """
        with_cls = int(query_positions.size(1) == key_positions.size(1))
        rest = self._sum(query_positions[:, with_cls:], key_positions[:, 1:])
        from_cls, to_cls = self._theta().to(rest.dtype).view(2, 1, -1, 1, 1)
        rest = rest.expand(-1, from_cls.size(1), -1, -1)
        total = torch.cat((to_cls.expand(*rest.shape[:-1], 1), rest), dim=-1)
        row = from_cls.expand(*total.shape[:2], with_cls, total.size(-1))
        return torch.cat((row, total), dim=-2)

    def _theta(self) -> Tensor:
        """θ1 and θ2 of every head, (2, H)."""
        own = [term.cls_logits() for term in cast(Iterable[SharedBias], self.values())]
        values = [value for value in (*own, self.theta) if value is not None]
        return torch.stack(values).sum(dim=0)
