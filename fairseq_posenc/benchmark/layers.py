"""Single self-attention layers, as in the plug-in's models."""

import argparse
import shlex
from typing import Any, Callable, List, NamedTuple

from torch import Tensor

from fairseq_posenc.attention.registry import ATTENTIONS
from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.benchmark.masked_lm import MaskedLMSubject
from fairseq_posenc.benchmark.translation import TranslationSubject
from fairseq_posenc.stacks.positions import Keys, Padding, positions_of


class Layer(NamedTuple):
    """A self-attention layer with its projections, and a function that applies it.

    Args:
        module: the layer.
        compute: (B, T, C) -> (B, T, C), or, if not *batch_first*, (T, B, C) -> (T, B, C).
        channels: C.
        batch_first: the layout that the layer has in its own models.
        comparable: whether its outputs should equal those of our layer with the same weights.
    """

    module: Any
    compute: Callable[[Tensor], Tensor]
    channels: int
    batch_first: bool = True
    comparable: bool = True

    def laid_out(self, x: Tensor) -> Tensor:
        """*x* (B, T, C) in the layout of the layer, and back."""
        return x if self.batch_first else x.transpose(0, 1).contiguous()


def plug_in_layer(entry: str, flags: List[str], args: argparse.Namespace, causal: bool) -> Layer:
    """The layer of a translation model, with its stack's per-forward inputs computed once.

    Attention that is for bidirectional stacks alone is that of a masked language model.

    Args:
        entry: for messages.
        flags: flags of the model, added to those of all entries.
        args: the command line.
        causal: the decoder's layer instead of the encoder's.

    Raises:
        UsageError: the encoding adds to the logits; its gradient would involve the whole stack.
    """
    words = ["--position-encoding", "rotary", "--attention-dropout", "0", *flags]
    kernel = ATTENTIONS.find(flags[flags.index("--attention") + 1]).thing
    model: Any
    if kernel.abilities.bidirectional_only and not causal:
        model = MaskedLMSubject(shlex.join([MaskedLMSubject.generic, *words]), args).model
        stack = model.encoder.sentence_encoder
    else:
        model = TranslationSubject(shlex.join([TranslationSubject.generic, *words]), args).model
        stack = model.decoder if causal else model.encoder
    encoding, layer = stack.encoding, stack.layers[0]
    if encoding.shared_bias is not None or encoding.content:
        raise UsageError(
            f"--archs {entry!r}: --position-encoding {encoding.name} adds to the logits; with "
            "--lengths give rotary, sinusoidal, learned or none"
        )
    length, like = args.length[0], stack.embed_tokens.weight
    x = like.new_zeros(args.batch, length, layer.embed_dim)
    keys = Keys(length, Padding(), causal)
    given = positions_of(layer, stack.positions.of_layers(x, keys, stack.training))
    attention = layer.self_attn
    return Layer(attention, lambda x: attention(x, **given)[0], layer.embed_dim)
