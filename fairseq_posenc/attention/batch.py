"""The batch of a forward pass, as the kernels see it: padding, positions and sizes."""

from typing import NamedTuple, Optional

import torch
from torch import Tensor

from fairseq_posenc.encodings.places import Places


class Padding(NamedTuple):
    """Says which tokens of a batch are padding."""

    mask: Optional[Tensor] = None  # (B, S), True at padding; None if no real token sees any padding
    left: bool = False  # whether a sequence begins with padding
    empty: bool = False  # whether a sequence has nothing but padding
    # length of the first text of each pair, (B, 1), for patterns that depend on it
    first_text: Optional[Tensor] = None

    def after(self, memory: int) -> "Padding":
        """The same padding with *memory* tokens in front, visible to all."""
        if self.mask is None:
            return self
        seen = self.mask.new_zeros(self.mask.size(0), memory)
        return Padding(torch.cat((seen, self.mask), dim=1))


class Batch(NamedTuple):
    """Sizes and masks of a forward pass, from which kernels prepare their arguments."""

    # input of the first layer for the new tokens, (B, T, C); they are the last T of S, unless
    # *assigned* says otherwise
    like: Tensor
    length: int  # S
    padding: Padding = Padding()  # the padding of all S tokens
    causal: bool = False  # hide later keys
    # number of last keys that this forward pass projects, by default T; the others are in the
    # cache; S if layers get *keys*, as with a memory
    projected: Optional[int] = None
    assigned: Optional[Places] = None  # positions in place of 0, 1, 2, …
