"""The sum of the content-free logits of a composition, with [CLS] untied on request.

TUPE, Ke, He, Liu, arXiv 2006.15595.  [CLS] is not a word and its position carries no information,
so all content-free logits v_ij that involve it can be reset (Eq. 9, with [CLS] at position 0):

    reset_θ(v, i, j) = θ1    from [CLS], i = 0 (to itself, too)
                       θ2    from others to [CLS], j = 0
                       v_ij  otherwise
"""

from typing import Any, Dict, Optional

import torch
from torch import Tensor, nn

from fairseq_posenc.encodings.base import Places, SharedBias, Stack
from fairseq_posenc.flags.options import Options


class SharedBiasSum(nn.ModuleDict):
    """Sum of the content-free terms of a stack, keyed by encoding name; [CLS] may be untied."""

    def __init__(self, terms: Dict[str, SharedBias], options: Options, stack: Stack) -> None:
        super().__init__(terms)
        self.untie_cls = bool(options.untie_cls)
        #: whether all logits are a function of the distance alone
        self.distance_alone = all(t.distance_alone for t in terms.values()) and not self.untie_cls
        computed = [term.cls_logits() is not None for term in terms.values()]
        enough = any(computed) if options.cls_reset == "sum" else all(computed)
        free = nn.Parameter(torch.zeros(2, stack.num_heads)) if not enough else None
        self.theta: Optional[nn.Parameter]
        self.register_parameter("theta", free if self.untie_cls else None)

    def forward(self, places: Places, cls_first: bool = True) -> Tensor:
        """Logits (1|B, 1|H, T, S); *cls_first* is False if rows begin with padding, not [CLS]."""
        if not self.untie_cls:
            return self._sum(places)
        if places.by_index and cls_first and places.keys.size(1) > 1:
            return self._beside_cls(places)
        total = self._sum(places)
        from_cls, to_cls = self._theta().to(total.dtype).view(2, 1, -1, 1, 1)
        total = torch.where((places.keys == 0)[:, None, None, :], to_cls, total)
        return torch.where((places.queries == 0)[:, None, :, None], from_cls, total)

    def by_distance(self, distances: Tensor) -> Tensor:
        """Logits (H, N), float32, of *distances* (N); see :attr:`distance_alone`."""
        terms: Any = self.values()
        return torch.stack([term.logits_by_distance(distances).float() for term in terms]).sum(0)

    def without_content(self, positions: Tensor) -> Dict[str, Tensor]:
        """Logits (1, 1|H, T, T) at *positions* (1, T) of each term and of the sum, by name."""
        places = Places(positions, positions, positions.size(1), by_index=True)
        logits = {name: term(places) for name, term in self.items()}
        if len(logits) > 1 or self.untie_cls:
            untied = ", [CLS] untied" if self.untie_cls else ""
            logits[" + ".join(logits) + untied] = self(places)
        return logits

    def _sum(self, places: Places) -> Tensor:
        logits = [term(places) for term in self.values()]
        return sum(logits[1:], logits[0])

    def _beside_cls(self, places: Places) -> Tensor:
        """Logits (1, H, T, S) of tokens other than [CLS], with a row and a column for it.

        This needs no mask, unlike a choice by position.
        """
        queries, keys = places.queries, places.keys
        with_cls = int(queries.size(1) == keys.size(1))
        rest = self._sum(places._replace(queries=queries[:, with_cls:], keys=keys[:, 1:]))
        from_cls, to_cls = self._theta().to(rest.dtype).view(2, 1, -1, 1, 1)
        rest = rest.expand(-1, from_cls.size(1), -1, -1)
        total = torch.cat((to_cls.expand(*rest.shape[:-1], 1), rest), dim=-1)
        row = from_cls.expand(*total.shape[:2], with_cls, total.size(-1))
        return torch.cat((row, total), dim=-2)

    def _theta(self) -> Tensor:
        """θ1 and θ2 of every head, (2, H)."""
        terms: Any = self.values()
        values = [*(term.cls_logits() for term in terms), self.theta]
        return torch.stack([value for value in values if value is not None]).sum(dim=0)
