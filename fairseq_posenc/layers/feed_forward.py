"""``--feed-forward``: the position-wise feed-forward sub-layer of a Transformer layer, by name.

fairseq's layers have two projections, ``fc1`` and ``fc2``, an activation and a dropout.  A form can
fix the activation, add ``fc_gate``, or replace modules; fairseq's parameter names stay the same.
:func:`.transformer.feed_forward` computes the sub-layer.
"""

from dataclasses import dataclass
from typing import Callable, List, Optional

import torch.nn.functional as F
from torch import Tensor

from fairseq_posenc.flags.options import Layer, Options
from fairseq_posenc.flags.registry import ClassRegistry
from fairseq_posenc.flags.settings import setting


class FeedForward:
    """fc2(f(fc1(x))) (Vaswani et al. 2017, Eq. 2), and the base of all forms."""

    #: f, if the form fixes it; None to use ``--activation-fn``
    activation: Optional[Callable[[Tensor], Tensor]] = None

    @staticmethod
    def extend(layer: Layer, options: Options) -> None:
        """Add or replace modules of a new *layer*, such as ``fc_gate``; by default, do nothing."""


FEED_FORWARDS = ClassRegistry("--feed-forward", "feed-forwards")
#: Decorates a subclass of :class:`FeedForward`.
register_feed_forward = FEED_FORWARDS.register


def forms_with_activation() -> List[str]:
    """The forms on which ``--activation-fn`` has an effect."""
    return [name for name, entry in FEED_FORWARDS.items() if entry.thing.activation is None]


@dataclass
class FeedForwardFlags:
    """The flag of the feed-forward sub-layer."""

    feed_forward: Optional[str] = setting(
        "mlp",
        "feed-forward of every Transformer layer: {choices}; all but mlp gate the activation with "
        "a third projection",
        choices=FEED_FORWARDS,
        needs={"layer": ("transformer",)},
    )


register_feed_forward(
    "mlp", paper="Vaswani et al. 2017, arXiv 1706.03762", summary="fc2(f(fc1(x)))"
)(FeedForward)


@register_feed_forward(
    "glu", paper="Shazeer 2020, arXiv 2002.05202", summary="fc2(f(fc1(x)) ⊙ fc_gate(x))"
)
class GatedFeedForward(FeedForward):
    """fc2(f(fc1(x)) ⊙ fc_gate(x)) (Shazeer 2020, Eq. 6)."""

    @staticmethod
    def extend(layer: Layer, options: Options) -> None:
        """Add ``fc_gate``, with the size of ``fc1``."""
        sizes = (layer.fc1.in_features, layer.fc1.out_features)
        layer.fc_gate = layer.build_fc1(*sizes, layer.quant_noise, layer.quant_noise_block_size)


@register_feed_forward(
    "swiglu",
    paper="Shazeer 2020, arXiv 2002.05202",
    summary="fc2(swish(fc1(x)) ⊙ fc_gate(x)), regardless of --activation-fn",
)
class SwiGLU(GatedFeedForward):
    """fc2(swish(fc1(x)) ⊙ fc_gate(x)) (Shazeer 2020, Eq. 6; GAU section 2.2)."""

    activation = staticmethod(F.silu)


@register_feed_forward(
    "geglu",
    paper="Shazeer 2020, arXiv 2002.05202",
    summary="fc2(gelu(fc1(x)) ⊙ fc_gate(x)), regardless of --activation-fn",
)
class GEGLU(GatedFeedForward):
    """fc2(gelu(fc1(x)) ⊙ fc_gate(x)) (Shazeer 2020, Eq. 6)."""

    activation = staticmethod(F.gelu)
