"""Linear attention with powers of ReLU."""

from dataclasses import dataclass
from typing import Any, Optional

from torch import Tensor

from fairseq_posenc.attention import register_attention
from fairseq_posenc.attention.linear.feature_maps import FeatureMap
from fairseq_posenc.attention.linear.layer import LinearAttention, LinearFlags
from fairseq_posenc.flags.settings import setting


@dataclass
class PowerFlags(LinearFlags):
    """The power of ReLU, in addition to the flags of every linear attention."""

    relu_power: Optional[int] = setting(
        2, "exponent p of the features relu(x)^p", at_least=1, at_most=8
    )


class PowerFeatures(FeatureMap):
    """Features relu(x)^p of queries and keys; arguments as for the base class."""

    def __init__(self, head_dim: int, options: Any, side: str) -> None:
        super().__init__(head_dim, options, side)
        self.power = int(options.relu_power)

    @classmethod
    def is_positive(cls, options: Any) -> bool:
        """False: features, and so the denominators, may be 0."""
        return False

    def queries(self, q: Tensor, positions: Optional[Tensor] = None) -> Tensor:
        """Features of queries (B, H, T, D)."""
        return q.relu() ** self.power

    def keys(
        self, k: Tensor, stabiliser: Optional[Tensor] = None, positions: Optional[Tensor] = None
    ) -> Tensor:
        """Features of keys (B, H, S, D)."""
        return k.relu() ** self.power


@register_attention(
    "relu_power",
    paper="Han et al. 2023, FLatten Transformer, arXiv 2308.00442, without its normalisation",
    summary="linear, with features relu(x)^p",
    flags=PowerFlags,
)
class PowerAttention(LinearAttention):
    """Linear attention with :class:`PowerFeatures`; arguments as for :class:`LinearAttention`."""

    map_class = PowerFeatures
