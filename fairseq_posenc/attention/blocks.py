"""Sequences split into blocks, and each block of queries with the blocks of keys around it.

A window that slides over a sequence is a band of the attention matrix.  Products of a block of
queries with the neighbouring blocks of keys cover the band with dense matrices, and take memory
linear in the length (Longformer, Beltagy et al., arXiv 2004.05150, appendix A, "sliding chunks").
A window with gaps of d tokens is a window without gaps in each of the d sequences of every d-th
token.
"""

from typing import List, NamedTuple, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor


class Blocks(NamedTuple):
    """The split of R sequences into N blocks of L tokens each.

    >>> blocks = Blocks(size=2, before=1, after=0)
    >>> parts = blocks.split(torch.arange(1, 6).unsqueeze(0))
    >>> parts
    tensor([[[1, 2],
             [3, 4],
             [5, 0]]])
    >>> torch.cat(blocks.neighbours([parts])[0], dim=2)
    tensor([[[0, 0, 1, 2],
             [1, 2, 3, 4],
             [3, 4, 5, 0]]])

    Args:
        size: L.
        before: blocks before its own that a block of queries sees.
        after: blocks after its own.
        dilation: d, distance between tokens of one sequence after splitting.
    """

    size: int
    before: int
    after: int
    dilation: int = 1

    @property
    def span(self) -> int:
        """K, the number of tokens in a block and its neighbours."""
        return (self.before + 1 + self.after) * self.size

    def count(self, length: int) -> int:
        """N for sequences of *length* tokens."""
        return -(-length // (self.dilation * self.size))

    def within(self, length: int) -> "Blocks":
        """The same split of *length* tokens, without neighbours that no block of them has.

        >>> Blocks(size=2, before=9, after=0).within(5).before
        2
        """
        most = self.count(length) - 1
        return self._replace(before=min(self.before, most), after=min(self.after, most))

    def split(self, x: Tensor) -> Tensor:
        """(R, S, …) -> (R·d, N, L, …), with zeros after the last token."""
        number, rest = self.count(x.size(1)), x.shape[2:]
        gap = number * self.dilation * self.size - x.size(1)
        if gap:
            x = F.pad(x, [0, 0] * len(rest) + [0, gap])
        if self.dilation > 1:  # (R, N·L·d, …) -> (R, d, N·L, …)
            x = x.reshape(x.size(0), -1, self.dilation, *rest).transpose(1, 2)
        return x.reshape(x.size(0) * self.dilation, number, self.size, *rest)

    def join(self, x: Tensor, length: int) -> Tensor:
        """(R·d, N, L, …) -> (R, S, …); the inverse of :meth:`split`."""
        rest = x.shape[3:]
        if self.dilation > 1:
            x = x.reshape(-1, self.dilation, x.size(1) * self.size, *rest).transpose(1, 2)
        return x.reshape(x.size(0), -1, *rest)[:, :length]

    def neighbours(self, segments: Sequence[Tensor]) -> List[List[Tensor]]:
        """The blocks before, at and after each block, zeros beyond the ends.

        Args:
            segments: the blocks of all sequences in their order, (R, n, L, …) each, of which all
                but the last have at least as many as a block has neighbours on one side.

        Returns:
            for every segment tensors (R, n, L, …), to be joined along the third dimension.
        """
        found = []
        for index, segment in enumerate(segments):
            near = [segments[index - 1][:, -self.before :]] if index and self.before else []
            near.append(segment)
            if self.after:
                near += [each[:, : self.after] for each in segments[index + 1 : index + 2]]
            seen = near[0] if len(near) == 1 else torch.cat(near, dim=1)
            number = segment.size(1)
            front = self.before if index == 0 else 0
            gap = self.before + number + self.after - front - seen.size(1)
            if front or gap:
                seen = F.pad(seen, [0, 0] * (segment.dim() - 2) + [front, gap])
            shifts = range(self.before + 1 + self.after)
            found.append([seen[:, start : start + number] for start in shifts])
        return found

    def distances(self, device: torch.device) -> Tensor:
        """Distance from each token of a block to each of its neighbours, in tokens, (L, K)."""
        keys = torch.arange(self.span, device=device) - self.before * self.size
        return (keys - torch.arange(self.size, device=device).unsqueeze(1)) * self.dilation
