"""The tokens that a layer attends to: their padding, number and spacing."""

from typing import List, NamedTuple, Optional

import torch
from torch import Tensor

from fairseq_posenc.stacks.explicit import Explicit


class Padding(NamedTuple):
    """The tokens of a batch that are padding, and where its texts begin."""

    mask: Optional[Tensor] = None  # (B, S), True at padding; None if no real token could see any
    left: bool = False  # whether a sequence begins with padding
    empty: bool = False  # whether a sequence has nothing but padding
    # length of the first text of each pair, (B, 1), for patterns that depend on it
    first_text: Optional[Tensor] = None
    # positions in place of those that are counted from the first real token
    explicit: Optional[Explicit] = None

    def empty_rows(self, causal: bool) -> bool:
        """True if a query may see no key at all."""
        return self.mask is not None and (self.empty or (causal and self.left))

    def after(self, memory: int) -> "Padding":
        """The same padding with *memory* tokens in front, visible to all."""
        if self.mask is None:
            return self
        seen = self.mask.new_zeros(self.mask.size(0), memory)
        return Padding(torch.cat((seen, self.mask), dim=1), explicit=self.explicit)


class Keys(NamedTuple):
    """The keys that the self-attention of a layer has, and how its queries lie among them."""

    length: int  # S
    padding: Padding  # the padding of the keys
    causal: bool = False  # hide later keys
    remembered: int = 0  # how many of the keys are in a memory, which layers project anew
    unit: int = 1  # distance between neighbouring keys, in tokens; above 1 where tokens are pooled
    # distance between neighbouring queries, in keys; 2 where only the queries are pooled
    step: int = 1

    def of_pooled(self, queries: int, device: torch.device) -> List[Tensor]:
        """Positions of the queries (1, T) and of the keys (1, S) where tokens are pooled.

        Pooled tokens have the position of the first token that they hold, and [CLS] is as far
        before the first of them as they are from each other.

        Args:
            queries: T.
            device: device of the result.
        """
        sizes = ((queries, self.step * self.unit), (self.length, self.unit))
        return [
            torch.arange(-1, n - 1, device=device).mul(apart).add(1).unsqueeze(0)
            for n, apart in sizes
        ]
