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


class BlockSlice(NamedTuple):
    """Consecutive blocks of consecutive sequences, an index into tensors (R, N, …)."""

    rows: slice
    blocks: slice

    @property
    def shape(self) -> Tuple[int, int]:
        """The number of sequences, and of blocks of each."""
        return self.rows.stop - self.rows.start, self.blocks.stop - self.blocks.start


class Seen(NamedTuple):
    """The keys that each block of queries sees.

    B sentences are split into R = B·d sequences of N blocks.

    Args:
        blocks: the split; a window is a block and its neighbours.
        first: G, how many first tokens of its sentence each block sees.
        chosen: numbers, from 0 to R·N - 1, of further blocks for each block, (R, N, r), or None.
    """

    blocks: Blocks
    first: int = 0
    chosen: Optional[Tensor] = None

    @staticmethod
    def segments(rows: int, number: int, most: int) -> List[BlockSlice]:
        """Segments of at most *most* blocks: whole sequences, or consecutive blocks of one.

        >>> [index.shape for index in Seen.segments(rows=3, number=3, most=6)]
        [(2, 3), (1, 3)]
        >>> [index.shape for index in Seen.segments(rows=2, number=3, most=2)]
        [(1, 2), (1, 1), (1, 2), (1, 1)]

        Args:
            rows: R.
            number: N.
            most: values below 1 count as 1.
        """
        most = max(most, 1)
        height, width = max(most // number, 1), min(most, number)
        return [
            BlockSlice(
                slice(row, min(row + height, rows)), slice(start, min(start + width, number))
            )
            for row in range(0, rows, height)
            for start in range(0, number, width)
        ]

    def read(self, x: Tensor, index: BlockSlice) -> Tensor:
        """The keys or values (n, S, H, D) that the n blocks at *index* see.

        Args:
            x: the keys or values of all blocks, (R, N, L, H, D).
            index: the n blocks.

        Returns:
            the first tokens, the window and the chosen blocks, in this order.
        """
        rows, blocks = index
        parts = [self.blocks.around(x[rows], blocks.start, blocks.stop)]  # (·, ·, K, H, D)
        if self.first:
            first = self._first_tokens(x, rows).unsqueeze(1)
            parts.insert(0, first.expand(-1, index.shape[1], -1, -1, -1))
        if self.chosen is not None:
            chosen = x.flatten(0, 1).index_select(0, self.chosen[index].flatten())
            parts.append(chosen.view(*index.shape, -1, *x.shape[3:]))
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

    def add(self, gradient: Tensor, index: BlockSlice) -> None:
        """Add the *gradient* (n, S, H, D) of the result of :meth:`Seen.read` for *index*."""
        seen, span = self.seen, self.seen.blocks.span
        gradient = gradient.unflatten(0, index.shape)
        rest = gradient.size(2) - seen.first - span
        first, window, chosen = gradient.split((seen.first, span, rest), dim=2)
        seen.blocks.add_around(self.sums[index.rows], window, index.blocks.start)
        if seen.first:
            self.first[index.rows].add_(first.sum(dim=1, dtype=self.first.dtype))
        if seen.chosen is not None:
            numbers, sums = seen.chosen[index].flatten(), self.sums.flatten(0, 1)
            sums.index_add_(0, numbers, chosen.reshape(len(numbers), *sums.shape[1:]))

    def total(self) -> Tensor:
        """The gradient (R, N, L, H, D)."""
        if self.seen.first:
            of_sentences = self.first.unflatten(0, (-1, self.seen.blocks.dilation)).sum(dim=1)
            self.seen.first_blocks(self.sums).add_(self.seen.blocks.split(of_sentences))
        return self.sums
