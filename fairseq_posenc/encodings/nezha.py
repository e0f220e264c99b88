"""NEZHA's relative positions: fixed sinusoids of the clipped distance as keys and values.

Wei et al., arXiv 1909.00204: Shaw's equations (:mod:`fairseq_posenc.encodings.shaw`)
with a^K = a^V = a, which is fixed and the same in all layers and heads:

    a_d[2t] = sin(d / 10000^{2t/D}),   a_d[2t+1] = cos(d / 10000^{2t/D}),   d = j - i, clipped

The released code counts distances from 0 instead of -K: its vector for distance d is a_{d+K} here.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Optional

import torch
from torch import Tensor

from fairseq_posenc.encodings.base import Stack
from fairseq_posenc.encodings.distance import sinusoids
from fairseq_posenc.encodings.registry import register_encoding
from fairseq_posenc.encodings.shaw import ClippedDistances
from fairseq_posenc.flags.options import Options
from fairseq_posenc.flags.settings import setting


@dataclass
class NezhaFlags:
    """The flag of NEZHA's relative positions."""

    nezha_max_distance: Optional[int] = setting(
        64,
        "clipping distance in tokens; longer distances share a vector",
        at_least=1,
        at_most=1_000_000,  # each distance has a vector
    )


@lru_cache(maxsize=None)  # constant
def vectors(max_distance: int, dim: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """a_d for d = -K … K, (2K + 1, D), computed in float64.

    >>> vectors(1, 2, torch.float32, torch.device("cpu"))
    tensor([[-0.8415,  0.5403],
            [ 0.0000,  1.0000],
            [ 0.8415,  0.5403]])
    """
    with torch.inference_mode(False):  # training uses the cached table, too
        distances = torch.arange(-max_distance, max_distance + 1)
        return sinusoids(distances, dim).to(device, dtype)


@register_encoding(
    "nezha",
    paper="Wei et al. 2019, arXiv 1909.00204",
    summary="fixed sinusoids of each clipped distance as keys and values",
    flags=NezhaFlags,
)
class NezhaSinusoids(ClippedDistances):
    """Fixed a^K and a^V; attention is fused only in decoding steps of one token on a GPU."""

    def __init__(self, options: Options, stack: Stack) -> None:
        super().__init__(options, stack)
        self.max_distance = self.max_later = int(options.nezha_max_distance)
        self.head_dim = stack.head_dim

    @classmethod
    def check(cls, options: Options, stack: Stack) -> None:
        """Refuse an odd head size."""
        stack.refuse_odd_heads("nezha")

    def vectors_of(self, part: str, like: Tensor) -> Tensor:
        """a_d for all distances d, (2K + 1, D)."""
        return vectors(self.max_distance, self.head_dim, like.dtype, like.device)
