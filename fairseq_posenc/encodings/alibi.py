"""ALiBi: attention with linear biases, a penalty that grows with the distance.

Press, Smith, Lewis, arXiv 2108.12409, section 3: head h of H adds -m_h · (i - j) to the logit of
query i and key j, with m_h = 2^(-8h/H).  Encoders, which also see later keys, use |i - j|; so do
decoders, where later keys are hidden and |i - j| = i - j.
"""

import math
from functools import lru_cache
from typing import List

import torch
from torch import Tensor

from fairseq_posenc.encodings.base import DistanceBias
from fairseq_posenc.encodings.registry import register_encoding


def slopes(num_heads: int) -> List[float]:
    """Slopes m_1 … m_H (section 3).

    If H is not a power of two, the slopes are, as in the authors' code, those for the next lower
    power of two, followed by every other slope for the next higher power.

    >>> slopes(4)
    [0.25, 0.0625, 0.015625, 0.00390625]
    """
    lower = 2 ** math.floor(math.log2(num_heads))
    first = [2.0 ** (-8.0 * h / lower) for h in range(1, lower + 1)]
    between = [2.0 ** (-4.0 * h / lower) for h in range(1, 2 * lower + 1, 2)]
    return first + between[: num_heads - lower]


@lru_cache(maxsize=None)  # so that slopes are copied to a GPU only once
def _slopes_on(device: torch.device, num_heads: int) -> Tensor:
    """Slopes (H, 1), float32, whatever the precision of the model."""
    return torch.tensor(slopes(num_heads), dtype=torch.float32, device=device).unsqueeze(1)


@register_encoding(
    "alibi",
    paper="Press et al. 2021, arXiv 2108.12409",
    summary="a fixed penalty on the logits, linear in the distance",
)
class Alibi(DistanceBias):
    """-m_h · |i - j|, without parameters."""

    def by_distance(self, distances: Tensor) -> Tensor:
        """-m_h · |d|, (H, N), float32, for *distances* d (N)."""
        return _slopes_on(distances.device, self.num_heads) * -distances.abs()
