"""A feed-forward sub-layer with a gate and squared ReLU."""

from torch import Tensor

from fairseq_posenc.layers.feed_forward import GatedFeedForward, register_feed_forward


@register_feed_forward(
    "squared_glu",
    paper="So et al. 2021, arXiv 2109.08668, with a gate",
    summary="fc2(relu(fc1(x))² ⊙ fc_gate(x))",
)
class SquaredGLU(GatedFeedForward):
    """fc2(relu(fc1(x))² ⊙ fc_gate(x))."""

    @staticmethod
    def activation(x: Tensor) -> Tensor:
        """relu(x)²."""
        return x.relu().square()
