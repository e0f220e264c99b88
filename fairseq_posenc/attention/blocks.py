"""Splitting of sequences into blocks, and the attention bias between blocks.

If each query sees a window of keys around it, visible pairs form a band of the attention matrix.
Dense products of each block of queries with neighbouring blocks of keys cover the band, in memory
linear in the length (Longformer, Beltagy et al., arXiv 2004.05150, appendix A, "sliding chunks").
A window with dilation d is a dense window in each of d subsequences that take every d-th token.
"""

from typing import NamedTuple, Optional

import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_posenc.attention.functional import Batch, aligned, product_dtype
from fairseq_posenc.encodings import PositionEncoding
from fairseq_posenc.encodings.base import Places


class Blocks(NamedTuple):
    """The split of R sequences into N blocks of L tokens each.

    >>> blocks = Blocks(size=2, before=1, after=0)
    >>> parts = blocks.split(torch.arange(1, 6).unsqueeze(0))
    >>> parts
    tensor([[[1, 2],
             [3, 4],
             [5, 0]]])
    >>> blocks.around(parts, 0, 3)
    tensor([[[0, 0, 1, 2],
             [1, 2, 3, 4],
             [3, 4, 5, 0]]])
    """

    size: int  # L
    before: int  # number of earlier blocks that a block of queries sees
    after: int  # number of later blocks that a block of queries sees
    dilation: int = 1  # d; after splitting, a sequence has every d-th token

    @property
    def span(self) -> int:
        """K, the number of tokens in a block and its neighbours."""
        return (self.before + 1 + self.after) * self.size

    def count(self, length: int) -> int:
        """N for sequences of *length* tokens."""
        return -(-length // (self.dilation * self.size))

    def within(self, length: int) -> "Blocks":
        """The same split with only those neighbours that exist in sequences of *length* tokens.

        >>> Blocks(size=2, before=9, after=0).within(5).before
        2
        """
        most = self.count(length) - 1
        return self._replace(before=min(self.before, most), after=min(self.after, most))

    def split(self, x: Tensor) -> Tensor:
        """Split *x* (R, S, …) into (R·d, N, L, …), with zeros after the last token."""
        number, rest = self.count(x.size(1)), x.shape[2:]
        gap = number * self.dilation * self.size - x.size(1)
        if gap:
            x = F.pad(x, [0, 0] * len(rest) + [0, gap])
        if self.dilation > 1:  # (R, N·L·d, …) -> (R, d, N·L, …)
            x = x.reshape(x.size(0), -1, self.dilation, *rest).transpose(1, 2)
        return x.reshape(x.size(0) * self.dilation, number, self.size, *rest)

    def join(self, x: Tensor, length: int) -> Tensor:
        """The inverse of :meth:`split`: (R·d, N, L, …) -> (R, S, …) with S = *length*."""
        rest = x.shape[3:]
        if self.dilation > 1:
            x = x.reshape(-1, self.dilation, x.size(1) * self.size, *rest).transpose(1, 2)
        return x.reshape(x.size(0), -1, *rest)[:, :length]

    def around(self, parts: Tensor, start: int, end: int) -> Tensor:
        """Each block from *start* to *end* - 1 with its neighbours, zeros beyond the sequence.

        *parts* is (R, N, L, …).  In the result, (R, end - start, K, …), overlaps share memory.
        """
        first, last, number = start - self.before, end + self.after, parts.size(1)
        front, gap = max(-first, 0), max(last - number, 0)
        near = parts[:, max(first, 0) : min(last, number)]
        if front or gap:
            near = F.pad(near, [0, 0] * (parts.dim() - 2) + [front, gap])
        # (R, ·, L, …) -> (R, ·, …, K) -> (R, ·, K, …)
        windows = near.flatten(1, 2).unfold(1, self.span, self.size)
        return windows.permute(0, 1, -1, *range(2, windows.dim() - 1))

    def add_around(self, sums: Tensor, gradient: Tensor, start: int) -> None:
        """Add *gradient* (R, n, K, …) of a result of :meth:`around` to *sums* (R, N, L, …)."""
        number = gradient.size(1)
        for shift, part in enumerate(gradient.split(self.size, dim=2)):
            first = start + shift - self.before
            low, high = max(first, 0), min(first + number, sums.size(1))
            if low < high:
                sums[:, low:high].add_(part[:, low - first : high - first])

    def distances(self, device: torch.device) -> Tensor:
        """Distance from each token of a block to each token in and around the block, (L, K)."""
        keys = torch.arange(self.span, device=device) - self.before * self.size
        return (keys - torch.arange(self.size, device=device).unsqueeze(1)) * self.dilation


def masked_logits(visible: Tensor, logits: Optional[Tensor], dtype: torch.dtype) -> Tensor:
    """The *logits*, or 0 if there are none, with -inf at keys that are not *visible*."""
    if logits is None:
        return torch.zeros_like(visible, dtype=dtype).masked_fill_(~visible, float("-inf"))
    return logits.to(dtype).masked_fill(~visible, float("-inf"))


def pair_bias(
    encoding: PositionEncoding, places: Places, visible: Tensor, dtype: torch.dtype
) -> Tensor:
    """The sum of the additive mask and the content-free logits of *encoding*, (1|B, 1|H, T, S).

    Positions of padding may be below 0; *visible* (1|B, T, S) is True where a query sees a key.
    """
    logits = None
    if encoding.shared_bias is not None:
        queries, keys = (positions.clamp(min=0) for positions in places[:2])
        logits = encoding.shared_bias(places._replace(queries=queries, keys=keys))
    return aligned(masked_logits(visible.unsqueeze(1), logits, dtype))


class BlockBias:
    """The biases of blocks of queries for several kinds of keys, (1|B, d, N, 1|H, L, ·) each.

    All tokens of *batch* are new: S = T.  All padding is on the right, and *visible* (1|B, S) is
    False at padding.  *positions* is (1|B, S), or None for 0, 1, 2, ….
    """

    def __init__(
        self,
        encoding: PositionEncoding,
        batch: Batch,
        positions: Optional[Tensor],
        blocks: Blocks,
        visible: Tensor,
    ) -> None:
        self.encoding, self.shared_bias = encoding, encoding.shared_bias
        self.causal, self.blocks, self.visible = batch.causal, blocks, visible
        self.device, self.dtype = visible.device, product_dtype(batch.like)
        self.index = torch.arange(batch.length, device=self.device).unsqueeze(0)
        self.queries = self._split(self.index)  # (1, d, N, L)
        self.counted = positions is None
        self.positions = self.index if positions is None else positions
        self.bound = batch.length if batch.assigned is None else batch.assigned.bound

    def _split(self, x: Tensor) -> Tensor:
        """Split *x* (1|B, S) into (1|B, d, N, L)."""
        return self.blocks.split(x).unflatten(0, (len(x), -1))

    def _around(self, x: Tensor) -> Tensor:
        """Split *x* (1|B, S) into blocks with their neighbours, (1|B, d, N, K)."""
        parts = self.blocks.split(x)
        return self.blocks.around(parts, 0, parts.size(1)).unflatten(0, (len(x), -1))

    def _bias(self, visible: Tensor, logits: Optional[Tensor]) -> Tensor:
        """The *logits*, or 0, with -inf where *visible* (1|B, d, N, 1|L, ·) is False."""
        return masked_logits(visible.unsqueeze(3), logits, self.dtype)

    def _at(self, queries: Tensor, keys: Tensor) -> Optional[Tensor]:
        """Logits (1|B, d, N, 1|H, L, ·) of *queries* (1|B, d, N, L) and *keys* (1|B, d, N, ·)."""
        if self.shared_bias is None:
            return None
        outer = max(queries.shape[:3], keys.shape[:3])
        queries, keys = (x.expand(*outer, -1).flatten(0, 2) for x in (queries, keys))
        return self.shared_bias(Places(queries, keys, self.bound)).unflatten(0, outer)

    def to_first(self, number: int, is_global: Tensor) -> Tensor:
        """The bias for the first *number* keys, -inf where *is_global* (1|B, S) is False."""
        visible = (self.visible & is_global)[:, None, None, None, :number]
        keys = self.index[0, :number]
        if self.causal:
            visible = visible & (keys <= self.queries.unsqueeze(-1))
        size = (*self.queries.shape[1:3], self.blocks.size, number)
        visible = visible.expand(visible.size(0), *size)
        first = self.positions[:, None, None, :number].expand(-1, *size[:2], number)
        return self._bias(visible, self._at(self._split(self.positions), first))

    def from_first(self, number: int) -> Tensor:
        """The bias of the first *number* = G queries for all keys, (1|B, 1|H, G, S)."""
        visible = self.visible.unsqueeze(1).expand(-1, number, -1)
        places = Places(self.positions[:, :number], self.positions, self.bound)
        return pair_bias(self.encoding, places, visible, self.dtype)

    def to_window(self, band: Tensor, is_global: Tensor) -> Tensor:
        """The bias for keys in the *band* (L, K), -inf where *is_global* (1|B, S) is True."""
        visible = self._around(self.visible & ~is_global).unsqueeze(3) & band
        if self.shared_bias is None or not (self.counted and self.shared_bias.distance_alone):
            at = (self._split(self.positions), self._around(self.positions))
            return self._bias(visible, self._at(*at))
        # all blocks have the same logits
        start, step = self.blocks.before * self.blocks.size, self.blocks.dilation
        keys = torch.arange(self.blocks.span, device=self.device).unsqueeze(0)
        queries = keys[:, start : start + self.blocks.size]
        shared = self.shared_bias(Places(queries * step, keys * step, self.blocks.span * step))
        return self._bias(visible, shared[:, None, None])

    def to_chosen(self, chosen: Tensor) -> Tensor:
        """The bias for keys in the blocks *chosen* (1|B, N, R), -1 for none; requires d = 1."""
        size = self.blocks.size
        index = chosen.clamp(min=0).unsqueeze(-1) * size + torch.arange(size, device=self.device)
        index = index.flatten(2).unsqueeze(1)  # (1|B, 1, N, R·L)
        inside = index.clamp(max=self.index.size(1) - 1)
        there = (chosen >= 0).repeat_interleave(size, dim=2).unsqueeze(1) & (index == inside)
        rows = max(len(self.visible), len(index))
        seen = self.visible.expand(rows, -1).gather(1, inside.expand(rows, -1, -1, -1).flatten(1))
        visible = (seen.view(rows, *index.shape[1:]) & there).unsqueeze(3)
        visible = visible.expand(-1, -1, -1, size, -1)
        rows = max(len(self.positions), len(inside))
        at = inside.flatten(1).expand(rows, -1)
        keys = self.positions.expand(rows, -1).gather(1, at).view(rows, *inside.shape[1:])
        return self._bias(visible, self._at(self._split(self.positions), keys))


def rolled(x: Tensor, starts: Tensor, dim: int = 1) -> Tensor:
    """Roll each sequence of *x* along *dim* so that the token at index *starts* (B, 1) is first.

    >>> rolled(torch.tensor([[7, 8, 9]]), torch.tensor([[1]]))
    tensor([[8, 9, 7]])
    """
    length = x.size(dim)
    order = (torch.arange(length, device=x.device) + starts) % length  # (B, S)
    shape = [1] * x.dim()
    shape[0], shape[dim] = x.size(0), length
    return x.gather(dim, order.view(shape).expand_as(x))


def chunked(x: Tensor, size: int) -> Tensor:
    """Split *x* (…, T, C) into N chunks of *size* L, (…, N, L, C), with zeros at the end."""
    gap = -x.size(-2) % size
    x = F.pad(x, (0, 0, 0, gap)) if gap else x
    return x.reshape(*x.shape[:-2], x.size(-2) // size, size, x.size(-1))
