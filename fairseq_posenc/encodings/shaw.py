"""Shaw's relative positions: learned key and, optionally, value vectors for every distance.

Shaw, Uszkoreit, Vaswani, arXiv 1803.02155, Eq. 3 and 4 (RoFormer Eq. 32), with d = j - i clipped:

    e_ij = 1/√D · q_i · (k_j + a^K_d)
    z_i  = Σ_j softmax(e_i)_j · (v_j + a^V_d)        d = max(-K, min(K, j - i))

The heads of a layer share a^K and a^V, except under ``--shaw-per-head`` (section 4.1, for the base
model); layers never share them.
"""

from dataclasses import dataclass
from typing import Dict, Optional

import torch
from torch import Tensor, nn

from fairseq_posenc.basics.tensors import AT_LEAST_FLOAT32
from fairseq_posenc.encodings.base import Stack
from fairseq_posenc.encodings.content import Content, ContentBias
from fairseq_posenc.encodings.distance import distances
from fairseq_posenc.encodings.registry import register_encoding
from fairseq_posenc.flags.options import Options
from fairseq_posenc.flags.settings import setting


@dataclass
class ShawFlags:
    """Flags of Shaw's relative positions."""

    shaw_max_distance: Optional[int] = setting(
        16,
        "clipping distance in tokens; longer distances share a vector (Shaw et al. section 3.2)",
        at_least=1,
        at_most=1_000_000,  # each distance has a vector
    )
    shaw_values: Optional[bool] = setting(
        False,
        "also add learned vectors to the values, not only to the keys (Shaw et al. Eq. 3); "
        "attention then runs without a fused kernel, except in decoding on a GPU",
    )
    shaw_per_head: Optional[bool] = setting(
        False, "separate vectors for each head, not only for each layer (Shaw et al. section 4.1)"
    )


class ClippedDistances(ContentBias):
    """q_i · a^K_d / √D, and optionally Σ_j w_ij a^V_d, with d = j - i clipped.

    A subclass provides the vectors.
    """

    takes_positions = True
    #: K, and the largest d that has a vector
    max_distance: int
    max_later: int

    def vectors_of(self, part: str, like: Tensor) -> Tensor:
        """a^K (*part* ``key``) or a^V (``value``) of d = -K, -K + 1, …: (N, D), or (H, N, D).

        The dtype is that of *like*, except under autocast; *part* is ``value`` only if the encoding
        changes values.
        """
        raise NotImplementedError

    def forward(self, content: Content, vectors: Optional[Tensor] = None) -> Tensor:
        """Logits (B, H, T, S); arguments as in :class:`ContentBias`.

        On a CPU at 256 tokens, gather takes 0.8 to 0.9 of the time that shifting rows would take.
        """
        q = content.q
        keys = self.vectors_of("key", q)
        products = torch.matmul(q * content.scale, keys.transpose(-2, -1))  # (B, H, T, N)
        if self._seen_from_last(content):
            return self._by_key(products, -1, content)
        return products.gather(-1, self._rows(content).expand(*products.shape[:3], -1))

    def relative_values(self, content: Content, weights: Tensor) -> Tensor:
        """Σ_j w_ij a^V_d, (B, H, T, D), for weights (B, H, T, S).

        Weights of equal distance are summed first, in float32: half precision cannot accumulate the
        thousands of weights that may share the clipped distance.
        """
        values = self.vectors_of("value", weights)
        wide = weights.to(AT_LEAST_FLOAT32[weights.dtype])
        rows = self._rows(content).expand_as(wide)
        sums = wide.new_zeros(*wide.shape[:3], values.size(-2))
        sums = sums.scatter_add(-1, rows, wide)  # (B, H, T, N)
        return torch.matmul(sums.type_as(weights), values).type_as(weights)

    def added_values(self, content: Content) -> Tensor:
        """a^V_d of each key for the only query, (1|B, 1|H, S, D)."""
        values = self.vectors_of("value", content.q)
        if self._seen_from_last(content):
            added = self._by_key(values, -2, content)  # (S, D), or (H, S, D) by head
            return added.view(1, -1, *added.shape[-2:])
        rows = self._rows(content).squeeze(-2)  # (1|B, 1, S)
        added = values[..., rows, :]  # (1|B, 1, S, D) or (H, 1|B, 1, S, D)
        return added.squeeze(2).transpose(0, 1) if added.dim() == 5 else added

    def _seen_from_last(self, content: Content) -> bool:
        """True if keys are at the distances …, -2, -1, 0 from the only query."""
        return content.q.size(2) == 1 and content.distances is None

    def _by_key(self, x: Tensor, dim: int, content: Content) -> Tensor:
        """Index *x* by key instead of by distance along *dim*, for a query at the last key.

        Keys further away than K share the first vector.
        """
        far, near = content.k.size(2) - self.max_distance - 1, self.max_distance + 1
        if far <= 0:
            return x.narrow(dim, -far, near + far)
        sizes = [-1] * x.dim()
        sizes[dim] = far
        return torch.cat((x.narrow(dim, 0, 1).expand(sizes), x.narrow(dim, 0, near)), dim)

    def _rows(self, content: Content) -> Tensor:
        """Index of the vector for each query and key, (T, S) or (1|B, 1, T, S)."""
        steps = content.distances
        if steps is None:
            steps = distances(content.q.size(2), content.k.size(2), content.q.device)
        return steps.clamp(-self.max_distance, self.max_later) + self.max_distance


@register_encoding(
    "shaw",
    paper="Shaw et al. 2018, arXiv 1803.02155",
    summary="learned keys, and optionally values, for each clipped distance",
    flags=ShawFlags,
)
class ShawBias(ClippedDistances):
    """Learned a^K and a^V.

    In a causal stack, the largest distance is 0.  Later keys, which queries see under
    ``--full-context-alignment``, count as distance 0, as with the T5 bias.
    """

    key_table: nn.Embedding

    def __init__(self, options: Options, stack: Stack) -> None:
        super().__init__(options, stack)
        self.max_distance = int(options.shaw_max_distance)
        self.max_later = 0 if stack.causal else self.max_distance
        self.head_dim = stack.head_dim
        heads = stack.num_heads if options.shaw_per_head else 1
        #: names of the tables, without the ending ``_table`` of the parameters
        self.parts = ("key", "value") if options.shaw_values else ("key",)
        for part in self.parts:
            table = nn.Embedding(self.max_distance + 1 + self.max_later, heads * stack.head_dim)
            self.add_module(f"{part}_table", table)
        for part in self.parts:
            table = getattr(self, f"{part}_table")
            for vectors in table.weight.data.chunk(heads, dim=1):
                nn.init.xavier_uniform_(vectors)

    @classmethod
    def changes_values(cls, options: Options) -> Optional[str]:
        """``--shaw-values``, if enabled."""
        return "--shaw-values" if options.shaw_values else None

    def vectors_of(self, part: str, like: Tensor) -> Tensor:
        """a^K or a^V, (N, D) or (H, N, D)."""
        table = getattr(self, f"{part}_table").weight
        if table.size(1) == self.head_dim:
            return table
        return table.view(table.size(0), -1, self.head_dim).transpose(0, 1)  # (N, H·D)

    def tables(self) -> Dict[str, Tensor]:
        """a^K as ``keys`` and, if there is one, a^V as ``values``."""
        return {f"{part}s": self.vectors_of(part, self.key_table.weight) for part in self.parts}
