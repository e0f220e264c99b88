"""The keys that blocks of queries see: first tokens, a window, and chosen blocks.

Windows overlap, so the keys of all blocks would take several times the memory of the keys
themselves.  The window of a block is a view of the keys.  First tokens and chosen blocks are copied
beside it, for a segment of blocks at a time.
"""

from typing import List, NamedTuple, Optional, Tuple

import torch
from torch import Tensor

from fairseq_posenc.attention.blocks import Blocks
from fairseq_posenc.basics.tensors import AT_LEAST_FLOAT32


class Place(NamedTuple):
    """Some blocks of some sequences, as an index of tensors (R, N, …)."""

    rows: slice
    blocks: slice

    @property
    def shape(self) -> Tuple[int, int]:
        """The number of sequences, and of blocks of each."""
        return self.rows.stop - self.rows.start, self.blocks.stop - self.blocks.start


class Seen(NamedTuple):
    """The keys that each block of queries sees.

    The blocks are the N blocks of each of R = B·d sequences, into which B sentences are split.

    Args:
        blocks: the split, whose neighbours are the window.
        first: G, the number of first tokens of its sentence that each block sees.
        chosen: numbers of further blocks among all R·N, (R, N, r), or None.
    """

    blocks: Blocks
    first: int = 0
    chosen: Optional[Tensor] = None

    @staticmethod
    def segments(rows: int, number: int, most: int) -> List[Place]:
        """Parts of at most *most* blocks: whole sequences, or consecutive blocks of one.

        >>> [place.shape for place in Seen.segments(rows=3, number=3, most=6)]
        [(2, 3), (1, 3)]
        >>> [place.shape for place in Seen.segments(rows=2, number=3, most=2)]
        [(1, 2), (1, 1), (1, 2), (1, 1)]

        Args:
            rows: R.
            number: N.
            most: at least 1 is taken.
        """
        most = max(most, 1)
        height, width = max(most // number, 1), min(most, number)
        return [
            Place(slice(row, min(row + height, rows)), slice(start, min(start + width, number)))
            for row in range(0, rows, height)
            for start in range(0, number, width)
        ]

    def read(self, x: Tensor, place: Place) -> Tensor:
        """The keys or values (n, S, H, D) that the n blocks at *place* see.

        Args:
            x: the keys or values of all blocks, (R, N, L, H, D).
            place: some of the blocks.

        Returns:
            the first tokens, the window and the chosen blocks, in this order.
        """
        rows, blocks = place
        parts = [self.blocks.around(x[rows], blocks.start, blocks.stop)]  # (·, ·, K, H, D)
        if self.first:
            first = self._first_tokens(x, rows).unsqueeze(1)
            parts.insert(0, first.expand(-1, place.shape[1], -1, -1, -1))
        if self.chosen is not None:
            found = x.flatten(0, 1).index_select(0, self.chosen[place].flatten())
            parts.append(found.view(*place.shape, -1, *x.shape[3:]))
        seen = parts[0] if len(parts) == 1 else torch.cat(parts, dim=2)
        return seen.flatten(0, 1)

    def _first_tokens(self, x: Tensor, rows: slice) -> Tensor:
        """The first tokens of the sentence of each of the *rows*, (·, G, H, D)."""
        step = self.blocks.dilation
        start, stop = rows.start // step * step, -(-rows.stop // step) * step  # whole sentences
        first = self.blocks.join(self.first_blocks(x)[start:stop], self.first)
        if step == 1:
            return first
        return first.repeat_interleave(step, dim=0)[rows.start - start : rows.stop - start]

    def first_blocks(self, x: Tensor) -> Tensor:
        """The blocks of *x* (R, N, …) that hold first tokens, a view (R, ·, …)."""
        return x[:, : self.blocks.count(self.first)]


class KeyGradient:
    """The gradient of keys or values (R, N, L, H, D), summed over all blocks that read them.

    Args:
        seen: the keys that every block reads.
        x: the keys or values.
    """

    def __init__(self, seen: Seen, x: Tensor) -> None:
        self.seen, self.sums = seen, x.new_zeros(x.shape)
        of_first = (len(x), seen.first, *x.shape[3:])
        self.first = x.new_zeros(of_first, dtype=AT_LEAST_FLOAT32[x.dtype])

    def add(self, gradient: Tensor, place: Place) -> None:
        """Add the *gradient* (n, S, H, D) of what :meth:`Seen.read` returned for *place*."""
        seen, span = self.seen, self.seen.blocks.span
        gradient = gradient.unflatten(0, place.shape)
        rest = gradient.size(2) - seen.first - span
        first, window, chosen = gradient.split((seen.first, span, rest), dim=2)
        seen.blocks.add_around(self.sums[place.rows], window, place.blocks.start)
        if seen.first:
            self.first[place.rows].add_(first.sum(dim=1, dtype=self.first.dtype))
        if seen.chosen is not None:
            index, sums = seen.chosen[place].flatten(), self.sums.flatten(0, 1)
            sums.index_add_(0, index, chosen.reshape(len(index), *sums.shape[1:]))

    def total(self) -> Tensor:
        """The gradient (R, N, L, H, D)."""
        if self.seen.first:
            of_sentences = self.first.unflatten(0, (-1, self.seen.blocks.dilation)).sum(dim=1)
            self.seen.first_blocks(self.sums).add_(self.seen.blocks.split(of_sentences))
        return self.sums
