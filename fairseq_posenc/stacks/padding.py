"""The padding of a batch, and what it means for positions and masks."""

from typing import List, NamedTuple, Optional, Tuple

import torch
from torch import Tensor

from fairseq_posenc.stacks.explicit import Explicit


class Padding(NamedTuple):
    """The padding of a batch, and what it means for positions and masks."""

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


def find_padding(*sides: Tuple[Tensor, bool]) -> List[Padding]:
    """The padding of several batches, with one read from the device.

    Whether there is padding decides how attention is computed, so the host has to wait for the
    answer.  On a GPU that stops the queue of kernels: all questions of a step are asked at once.

    >>> mask = torch.tensor([[False, False, True]])
    >>> [found.mask is None for found in find_padding((mask, False), (mask, True))]
    [False, True]

    Args:
        sides: the padding of each batch, (B, S), True at padding; and whether a causal mask hides
            padding on the right, the usual kind in training, from all real tokens.
    """
    if torch.jit.is_tracing():  # a graph serves other batches, too
        return [Padding(mask, left=True, empty=True) for mask, _ in sides]
    answers = []
    for mask, causal in sides:
        visible = mask[:, :-1] & ~mask[:, 1:] if causal else mask
        answers += [visible.any(), mask[:, 0].any(), mask.all(dim=1).any()]
    flags = iter(torch.stack(answers).tolist())
    return [
        Padding(mask if visible else None, left, empty)
        for (mask, _), visible, left, empty in zip(sides, flags, flags, flags)
    ]
