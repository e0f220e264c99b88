"""Linear attention with a softmax of queries and a softmax of keys ("efficient attention").

Shen et al. 2021, arXiv 1812.01243.
"""

from dataclasses import dataclass
from typing import Optional

from torch import Tensor

from fairseq_posenc.attention.base import register_attention
from fairseq_posenc.attention.linear.feature_maps import FeatureMap
from fairseq_posenc.attention.linear.layer import LinearAttention, LinearFlags
from fairseq_posenc.flags.options import Options
from fairseq_posenc.flags.settings import setting

#: Keys are clamped to ±20: exp(20) / exp(-20), squared in a gradient, is still finite in float32.
LARGEST_EXPONENT = 20.0


@dataclass
class SoftmaxFeaturesFlags(LinearFlags):
    """Flags of linear attention with softmax features."""

    softmax_features_denominator: Optional[str] = setting(
        "feature",
        "denominators of --attention softmax_features: feature, each feature's sum over the keys "
        "(Shen et al. Eq. 5); query, each query's sum over features and keys (RoFormer Eq. 10 and "
        "11)",
        choices=("feature", "query"),
    )


class SoftmaxFeatures(FeatureMap):
    """φ(q) = softmax over the features, ϕ(k) = exp(k), by default divided by its sum over the keys.

    The default is Shen et al. Eq. 5; in RoFormer section 3.3, ϕ(k) = exp(k), and each query has one
    denominator, φ(q)·Σ ϕ(k), which is not rotated (Eq. 10 and 11).  Sums run over the keys that a
    query may see, so in a causal stack they depend on the query.  By default each feature has its
    own sum, by which queries are divided instead of keys.  This is equivalent unless features are
    rotated.  Then Eq. 11 rotates φ(q) after this division, and exp(k) undivided, so that cached
    keys stay valid for later queries.  Keys are clamped to ±20.
    """

    def __init__(self, head_dim: int, options: Options, side: str) -> None:
        super().__init__(head_dim, options, side)
        self.per_feature = options.softmax_features_denominator == "feature"

    def queries(self, q: Tensor, positions: Optional[Tensor] = None) -> Tensor:
        """Softmax of queries (B, H, T, D) over their channels."""
        return q.softmax(dim=-1)

    def keys(
        self, k: Tensor, stabiliser: Optional[Tensor] = None, positions: Optional[Tensor] = None
    ) -> Tensor:
        """exp of keys (B, H, S, D)."""
        return k.clamp(-LARGEST_EXPONENT, LARGEST_EXPONENT).exp()


@register_attention(
    "softmax_features",
    paper="Shen et al. 2021, arXiv 1812.01243",
    summary="linear, with a softmax of queries over channels and of keys over positions",
    flags=SoftmaxFeaturesFlags,
)
class EfficientAttention(LinearAttention):
    """Linear attention with softmax features; arguments as for :class:`LinearAttention`."""

    map_class = SoftmaxFeatures
