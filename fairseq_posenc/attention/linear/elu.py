"""Linear attention with features elu(x) + 1.

Katharopoulos et al. 2020, arXiv 2006.16236.
"""

from typing import Optional

import torch.nn.functional as F
from torch import Tensor

from fairseq_posenc.attention.base import register_attention
from fairseq_posenc.attention.linear.feature_maps import FeatureMap
from fairseq_posenc.attention.linear.layer import LinearAttention, LinearFlags


class EluFeatures(FeatureMap):
    """φ(x) = ϕ(x) = elu(x) + 1 (Katharopoulos et al. Eq. 7)."""

    def queries(self, q: Tensor, positions: Optional[Tensor] = None) -> Tensor:
        """φ of queries (B, H, T, D)."""
        return F.elu(q).add_(1)

    def keys(
        self, k: Tensor, stabiliser: Optional[Tensor] = None, positions: Optional[Tensor] = None
    ) -> Tensor:
        """ϕ of keys (B, H, S, D)."""
        return F.elu(k).add_(1)


@register_attention(
    "elu",
    paper="Katharopoulos et al. 2020, arXiv 2006.16236",
    summary="linear, with features elu(x) + 1",
    flags=LinearFlags,
)
class EluAttention(LinearAttention):
    """Linear attention with features elu(x) + 1; arguments as for :class:`LinearAttention`."""

    map_class = EluFeatures
