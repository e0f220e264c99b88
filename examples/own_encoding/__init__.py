"""A custom position encoding and a custom linear attention, each with a flag, as ``--user-dir``.

    fairseq-train DATA --user-dir examples/own_encoding --arch posenc_transformer \
        --position-encoding gaussian --gaussian-width 4 ...
    fairseq-train DATA --user-dir examples/own_encoding --arch roformer_base \
        --attention relu_power --relu-power 2 ...
"""

from dataclasses import dataclass
from typing import Any, Optional

import torch
from torch import Tensor, nn

from fairseq_posenc.attention import register_attention
from fairseq_posenc.attention.linear.feature_maps import FeatureMap
from fairseq_posenc.attention.linear.layer import LinearAttention, LinearFlags
from fairseq_posenc.encodings import Stack, register_encoding
from fairseq_posenc.encodings.base import DistanceBias
from fairseq_posenc.exchange.ctranslate2_positions import bias_by_distance, expresses
from fairseq_posenc.flags.settings import setting


@dataclass
class GaussianFlags:
    """Flags of the Gaussian bias."""

    gaussian_width: Optional[float] = setting(
        8.0, "σ of every head at the start of training, in tokens", role="model", above=0
    )
    gaussian_stretch: Optional[float] = setting(
        1.0,
        "divide distances by this, for texts longer than in training",
        role="free",
        above=0,
    )


@register_encoding(
    "gaussian",
    paper="Guo et al. 2019, Gaussian Transformer, AAAI 33",
    summary="a penalty on the logits, quadratic in the distance, with a learned width per head",
    flags=GaussianFlags,
)
class GaussianBias(DistanceBias):
    """Content-free logits -(i - j)² / 2σ_h², with one learned σ per head.

    Args:
        options: reads ``gaussian_width`` and ``gaussian_stretch``.
        stack: number of heads.
    """

    def __init__(self, options: Any, stack: Stack) -> None:
        super().__init__(options, stack)
        self.stretch = float(options.gaussian_stretch)
        width = torch.full((stack.num_heads, 1, 1), float(options.gaussian_width))
        self.log_width = nn.Parameter(width.log())

    def by_distance(self, distances: Tensor) -> Tensor:
        """Logits (H, N) of distances (N)."""
        return -0.5 * (distances / self.stretch / self.log_width.exp()[:, 0]).square()


# all that `fairseq-posenc export ctranslate2` needs of an encoding that is a function of distance
expresses("gaussian", acts="bias", flags=("gaussian_width", "gaussian_stretch"))(bias_by_distance)


@dataclass
class PowerFlags(LinearFlags):
    """The power of ReLU, in addition to the flags of every linear attention."""

    relu_power: Optional[int] = setting(
        2, "exponent p of the features relu(x)^p", role="model", at_least=1, at_most=8
    )


class PowerFeatures(FeatureMap):
    """φ(x) = ϕ(x) = relu(x)^p.

    Args:
        head_dim: D.
        options: reads ``relu_power``.
        side: encoder or decoder.
    """

    def __init__(self, head_dim: int, options: Any, side: str) -> None:
        super().__init__(head_dim, options, side)
        self.power = int(options.relu_power)

    def queries(self, q: Tensor, positions: Optional[Tensor] = None) -> Tensor:
        """φ of queries (B, H, T, D)."""
        return q.relu() ** self.power

    def keys(
        self, k: Tensor, stabiliser: Optional[Tensor] = None, positions: Optional[Tensor] = None
    ) -> Tensor:
        """ϕ of keys (B, H, S, D)."""
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
