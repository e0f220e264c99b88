"""Linear attention with a softmax of queries and a softmax of keys ("efficient attention").

Shen et al. 2021, arXiv 1812.01243.
"""

from typing import Optional

from torch import Tensor

from fairseq_posenc.attention.linear.feature_maps import FeatureMap
from fairseq_posenc.attention.linear.layer import LinearAttention, LinearFlags
from fairseq_posenc.attention.registry import register_attention

#: Keys are clamped to ±20: exp(20) / exp(-20), squared in a gradient, is still finite in float32.
LARGEST_EXPONENT = 20.0


class SoftmaxFeatures(FeatureMap):
    """φ(q) = softmax over the features, ϕ(k) = exp(k) over its sum over the keys.

    Shen et al. Eq. 5; in RoFormer section 3.3, ϕ(k) = exp(k).  The sum runs over the keys that a
    query may see, so in a causal stack it depends on the query.  Every feature has a separate sum,
    which therefore does not cancel.  Queries are divided by it instead of keys; this is equivalent
    unless features are rotated.  Eq. 11 then rotates φ(q) divided by the sum, and exp(k), which
    keeps cached keys valid for later queries.  Keys are clamped to ±20.
    """

    per_feature = True

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
    flags=LinearFlags,
)
class EfficientAttention(LinearAttention):
    """Linear attention with softmax features; arguments as for :class:`LinearAttention`."""

    map_class = SoftmaxFeatures
