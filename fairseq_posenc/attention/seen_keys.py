"""The keys that blocks of queries see: first tokens, a window, and chosen blocks.

Windows overlap, so the keys of all blocks would take several times the memory of the keys
themselves.  A window is a view of them.  First tokens and chosen blocks are copied beside it, for a
segment of blocks at a time.
"""

from typing import List, NamedTuple, Optional

import torch
from torch import Tensor

from fairseq_posenc.attention.blocks import Blocks
from fairseq_posenc.basics.tensors import AT_LEAST_FLOAT32


class Seen(NamedTuple):
    """The keys of every block of queries, in memory that the blocks of all sentences share.

    The blocks are those of B sentences with d sequences of N blocks each; M = B·d·N.

    Args:
        blocks: the split, whose neighbours are the window.
        number: N.
        first: G, the number of first tokens of its sentence that each block sees.
        chosen: further blocks, (M, r), or None.
    """

    blocks: Blocks
    number: int
    first: int = 0
    chosen: Optional[Tensor] = None

    @property
    def of_sentence(self) -> int:
        """The number of blocks of a sentence."""
        return self.number * self.blocks.dilation

    def sentences(self, place: slice) -> slice:
        """The sentences that have blocks at *place*."""
        return slice(place.start // self.of_sentence, -(-place.stop // self.of_sentence))

    def segments(self, total: int, most: int) -> List[slice]:
        """Split *total* blocks into segments of at most *most*: whole sentences, or parts of one.

        >>> parts = Seen(Blocks(size=4, before=1, after=0), number=3).segments(6, most=2)
        >>> [(part.start, part.stop) for part in parts]
        [(0, 2), (2, 3), (3, 5), (5, 6)]
        """
        most, whole = max(most, 1), self.of_sentence
        if most >= whole:
            most, whole = most - most % whole, total
        return [
            slice(start, min(start + most, begin + whole))
            for begin in range(0, total, whole)
            for start in range(begin, begin + whole, most)
        ]

    def read(self, x: Tensor, place: slice) -> Tensor:
        """The keys or values that the n blocks at *place* see, out of *x* (M, L, H, D).

        Returns:
            (n, S, H, D): first tokens, window, chosen blocks.
        """
        parts = [self.blocks.around(x.unsqueeze(0), place.start, place.stop).squeeze(0)]
        if self.first:
            rows = self.first_blocks(x)
            # (B, G, H, D) -> (sentences, 1, G, H, D)
            first = self.blocks.join(rows, self.first)[self.sentences(place)].unsqueeze(1)
            each = len(parts[0]) // len(first)
            parts.insert(0, first.expand(-1, each, -1, -1, -1).flatten(0, 1))
        if self.chosen is not None:
            found = x.index_select(0, self.chosen[place].flatten())
            parts.append(found.view(len(parts[0]), -1, *x.shape[2:]))
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)

    def first_blocks(self, x: Tensor) -> Tensor:
        """The blocks of *x* (M, L, …) that hold first tokens, (B·d, ·, L, …), a view."""
        return x.unflatten(0, (-1, self.number))[:, : self.blocks.count(self.first)]


class KeyGradient:
    """The gradient of keys or values (M, L, H, D), from those of what segments have read.

    Args:
        seen: what is read.
        x: the keys or values.
    """

    def __init__(self, seen: Seen, x: Tensor) -> None:
        self.seen, self.sums = seen, x.new_zeros(x.shape)
        sentences = len(x) // seen.of_sentence
        shape = (sentences, seen.first, *x.shape[2:])
        self.first = x.new_zeros(shape, dtype=AT_LEAST_FLOAT32[x.dtype])

    def add(self, gradient: Tensor, place: slice) -> None:
        """Add the *gradient* of what :meth:`Seen.read` returned for *place*, (n, S, H, D)."""
        seen, blocks = self.seen, self.seen.blocks
        rest = gradient.size(1) - seen.first - blocks.span
        first, window, chosen = gradient.split((seen.first, blocks.span, rest), dim=1)
        blocks.add_around(self.sums.unsqueeze(0), window.unsqueeze(0), place.start)
        if seen.first:
            sums = self.first[seen.sentences(place)]
            each = len(first) // len(sums)
            sums.add_(first.unflatten(0, (-1, each)).sum(dim=1, dtype=sums.dtype))
        if seen.chosen is not None:
            index = seen.chosen[place].flatten()
            self.sums.index_add_(0, index, chosen.reshape(len(index), *self.sums.shape[1:]))

    def total(self) -> Tensor:
        """The gradient (M, L, H, D)."""
        if self.seen.first:
            rows = self.seen.first_blocks(self.sums)
            rows.add_(self.seen.blocks.split(self.first))
        return self.sums
