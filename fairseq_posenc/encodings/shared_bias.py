"""The sum of the content-free logits of a stack's encodings, optionally with [CLS] untied.

TUPE, Ke, He, Liu, arXiv 2006.15595.  Content-free logits v_ij depend on positions only, so they are
computed once per forward pass for all layers.  [CLS] is not a word and its position carries no
information, so all logits that involve it can be reset (Eq. 9, with [CLS] at position 0):

    reset_θ(v, i, j) = θ1    from [CLS], i = 0 (to itself, too)
                       θ2    from others to [CLS], j = 0
                       v_ij  otherwise
"""

from typing import Dict, Iterable, Optional, cast

import torch
from torch import Tensor, nn

from fairseq_posenc.encodings.base import SharedBias, Stack
from fairseq_posenc.options import Options


class SharedBiasSum(nn.ModuleDict):
    """Sum of content-free terms, with the terms keyed by encoding name.

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

    def forward(self, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        """Logits (1|B, 1|H, T, S) for positions (1|B, T) and (1|B, S)."""
        logits = [term(query_positions, key_positions) for term in self.values()]
        total = sum(logits[1:], logits[0])
        if not self.untie_cls:
            return total
        from_cls, to_cls = self._theta().to(total.dtype).view(2, 1, -1, 1, 1)
        total = torch.where((key_positions == 0)[:, None, None, :], to_cls, total)
        return torch.where((query_positions == 0)[:, None, :, None], from_cls, total)

    def _theta(self) -> Tensor:
        """θ1 and θ2 of every head, (2, H)."""
        own = [term.cls_logits() for term in cast(Iterable[SharedBias], self.values())]
        values = [value for value in (*own, self.theta) if value is not None]
        return torch.stack(values).sum(dim=0)
