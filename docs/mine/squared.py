"""A feed-forward sub-layer with a gate and squared ReLU."""

from typing import Any

from torch import Tensor

from fairseq_posenc.layers.feed_forward import FeedForward, register_feed_forward


@register_feed_forward(
    "squared_glu",
    paper="So et al. 2021, arXiv 2109.08668, with a gate",
    summary="fc2(relu(fc1(x))² ⊙ fc_gate(x))",
)
class SquaredGLU(FeedForward):
    """fc2(relu(fc1(x))² ⊙ fc_gate(x))."""

    @staticmethod
    def activation(x: Tensor) -> Tensor:
        """relu(x)²."""
        return x.relu().square()

    @staticmethod
    def extend(layer: Any, options: Any) -> None:
        """Add ``fc_gate``, with the size of ``fc1``."""
        sizes = (layer.fc1.in_features, layer.fc1.out_features)
        layer.fc_gate = layer.build_fc1(*sizes, layer.quant_noise, layer.quant_noise_block_size)

    @classmethod
    def hidden(cls, layer: Any, x: Tensor) -> Tensor:
        """The input of ``fc2``, (B, T, hidden), for x (B, T, C)."""
        return cls.activation(layer.fc1(x)) * layer.fc_gate(x)
