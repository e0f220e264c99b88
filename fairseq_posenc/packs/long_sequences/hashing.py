"""Locality-sensitive hashing of tokens into buckets, and chunks within buckets.

Reformer, Kitaev et al. 2020, arXiv 2001.04451, section 2.

The code of a token combines its bucket and its chunk in the bucket: ``bucket · CHUNKS + chunk``.
The tokens of a bucket are counted from the start of the text, so no code depends on later tokens.
"""

from typing import Optional, Tuple

import torch
from torch import Tensor, nn

from fairseq_posenc.attention.linear.random_features import DrawnInFloat32, generator_of
from fairseq_posenc.basics.tensors import AT_LEAST_FLOAT32

#: A bound on the chunks of a bucket, so that codes fit into 32 bits.
CHUNKS = 2**20
#: Maximum number of buckets, not counting the bucket for padding.
MOST_BUCKETS = 1024


class Hashing(DrawnInFloat32, nn.Module):
    """R *rounds* of angular hashing into *buckets*, which are cut into chunks of *chunk* tokens."""

    rotations: Tensor
    drawn_buffer = "rotations"

    def __init__(self, head_dim: int, buckets: int, rounds: int, chunk: int, key: str) -> None:
        super().__init__()
        self.buckets, self.rounds, self.chunk = buckets, rounds, chunk
        self.register_buffer("rotations", torch.empty(rounds, head_dim, buckets // 2))
        self.draw(key)

    @torch.no_grad()
    def draw(self, key: str) -> None:
        """Draw the rotations from the seed *key*."""
        self.rotations.copy_(torch.randn(self.rotations.shape, generator=generator_of(key)))

    @torch.no_grad()
    def buckets_of(self, x: Tensor, padding_mask: Optional[Tensor]) -> Tensor:
        """Buckets (B, H, R, T) of vectors (B, H, T, D); the last bucket holds the padding.

        h(x) = argmax [x M; -x M] with a random M, called R in section 2 (Andoni et al. 2015).
        *padding_mask* (B, T) is True at padding.
        """
        wide = AT_LEAST_FLOAT32[x.dtype]
        rotated = torch.matmul(
            x.to(wide).unsqueeze(2), self.rotations.to(wide)
        )  # (B, H, R, T, n/2)
        buckets = torch.cat((rotated, -rotated), dim=-1).argmax(dim=-1)
        if padding_mask is None:
            return buckets
        return buckets.masked_fill(padding_mask[:, None, None], self.buckets)

    @torch.no_grad()
    def codes(self, buckets: Tensor, earlier: Optional[Tensor]) -> Tensor:
        """Codes of tokens in *buckets* (B, H, R, T), with *earlier* (B, H, R, S) in the cache."""
        ranks = self._ranks(buckets)[0]
        if earlier is not None:
            ranks = ranks + (buckets.unsqueeze(-1) == earlier.unsqueeze(-2)).sum(dim=-1)
        chunks = torch.div(ranks, self.chunk, rounding_mode="floor")
        return (buckets * CHUNKS + chunks).int()

    def visible(self, q: Tensor, k: Tensor) -> Tensor:
        """True if a query with code *q* attends to a key with code *k*, whatever their order.

        A token attends to its chunk and the previous chunk of its bucket.
        """
        back = q - k
        return (back >= 0) & (back <= 1) & (k < self.buckets * CHUNKS)

    def _ranks(self, buckets: Tensor) -> Tuple[Tensor, Tensor]:
        """How many earlier tokens share the bucket of each token, and the size of each bucket.

        The shapes are (B, H, R, T) and (B, H, R, n); the last bucket is the bucket of padding.
        """
        counts = buckets.new_zeros(*buckets.shape[:-1], self.buckets + 1)
        counts.scatter_add_(-1, buckets, torch.ones_like(buckets))
        in_order, order = torch.sort(buckets, dim=-1, stable=True)
        first = counts.cumsum(dim=-1) - counts
        ranks = torch.arange(buckets.size(-1), device=buckets.device) - first.gather(-1, in_order)
        return torch.empty_like(ranks).scatter_(-1, order, ranks), counts

    def most_chunks(self, length: int) -> int:
        """Maximum number of chunks that *length* tokens can have."""
        return length // self.chunk + min(self.buckets, length)

    @torch.no_grad()
    def layout(self, buckets: Tensor) -> Tuple[Tensor, Tensor]:
        """Arrange tokens so that chunks are contiguous, and each holds tokens of one bucket.

        Returns:
            the slot of every token, (B, H, R, T), in N chunks of C slots (N·C for padding), where N
            is :meth:`most_chunks`; and the token in every slot, (B, H, R, N·C), T in empty slots.
        """
        length, (ranks, counts) = buckets.size(-1), self._ranks(buckets)
        places = self.most_chunks(length) * self.chunk
        chunks = torch.div(counts + self.chunk - 1, self.chunk, rounding_mode="floor")
        first = (chunks.cumsum(dim=-1) - chunks) * self.chunk
        place = (first.gather(-1, buckets) + ranks).masked_fill(buckets == self.buckets, places)
        token = torch.full_like(place[..., :1], length).repeat(1, 1, 1, places + 1)
        tokens = torch.arange(length, device=buckets.device).expand_as(place)
        return place, token.scatter_(-1, place, tokens)[..., :places]

    def extra_repr(self) -> str:
        """The settings shown by ``print(model)``."""
        return f"buckets={self.buckets}, rounds={self.rounds}, chunk={self.chunk}"
