"""Build and run single self-attention layers as they are in the plug-in's models."""

import argparse
import shlex
from typing import Any, Callable, Dict, List, NamedTuple

import torch
from torch import Tensor, nn

from fairseq_posenc.attention import ATTENTIONS, Batch
from fairseq_posenc.basics.errors import UsageError
from subjects import MaskedLMSubject, Run, Subject, TranslationSubject


class Layer(NamedTuple):
    """A self-attention layer with its projections, and a function that applies it."""

    module: Any  # the layer
    # from (B, T, C) to (B, T, C), or from (T, B, C) to (T, B, C) if not *batch_first*
    compute: Callable[[Tensor], Tensor]
    channels: int  # C
    batch_first: bool = True  # the layout of inputs and outputs in the layer's own models
    # whether, with equal weights, the outputs should equal our layer's
    comparable: bool = True

    def laid_out(self, x: Tensor) -> Tensor:
        """Convert *x* from (B, T, C) to the layout of the layer, or back."""
        return x if self.batch_first else x.transpose(0, 1).contiguous()


def plug_in_layer(flags: List[str], args: argparse.Namespace, causal: bool) -> Layer:
    """A layer of a translation model; the inputs that its stack prepares are computed once.

    A layer that only bidirectional stacks can have is taken from a masked language model instead.

    Args:
        flags: flags of the model, beginning with ``--attention``.
        causal: take the decoder's layer instead of the encoder's.

    Raises:
        UsageError: the encoding adds to the logits, so its gradient would involve the whole stack.
    """
    masked = ATTENTIONS.find(flags[1]).thing.bidirectional_only and not causal
    kind, name = (MaskedLMSubject, "masked_lm") if masked else (TranslationSubject, "transformer")
    words = ["--position-encoding", "rotary", "--attention-dropout", "0", *flags]
    args = argparse.Namespace(**{**vars(args), "layers": 1, "vocabulary": 5})
    model = kind(shlex.join([f"posenc_{name}", *words]), "training", args).model
    stack = model.decoder if causal else model.encoder
    stack = stack.sentence_encoder if masked else stack
    encoding, layer = stack.encoding, stack.layers[0]
    if encoding.shared_bias is not None or encoding.content:
        raise UsageError(
            f"--archs {shlex.join(flags[1:])!r}: --position-encoding {encoding.name} adds to the "
            "logits; for a single layer give rotary, sinusoidal, learned or none"
        )
    length, like = args.length[0], stack.embed_tokens.weight
    x = like.new_zeros(args.batch, length, layer.embed_dim)
    attention = layer.self_attn
    given = stack.prepare(Batch(x, length, causal=causal))[attention.kind]
    return Layer(attention, lambda x: attention(x, **given), layer.embed_dim)


class AttentionSubject(Subject):
    """The self-attention layer of an encoder or a decoder, and a batch without padding.

    The entry is a value of ``--attention``, optionally followed by flags of the model.
    """

    by_length = True

    def build(self, words: List[str]) -> nn.Module:
        """Build the layer of the encoder or, for the job causal-attention, of the decoder."""
        self.layer = self.make_layer(words, causal=self.job == "causal-attention")
        return self.layer.module

    def make_layer(self, words: List[str], causal: bool) -> Layer:
        """The layer of the encoder, or the *causal* one of the decoder."""
        return plug_in_layer(["--attention", *words], self.args, causal)

    def batch(self, draw: torch.Generator) -> Dict[str, Any]:
        """Random inputs and a gradient of the outputs, in the layer's own layout."""
        size = (self.args.batch, self.args.length[0], self.layer.channels)
        like = next(self.model.parameters())
        made = [self.layer.laid_out(torch.randn(size, generator=draw)).to(like) for _ in range(2)]
        return {"x": made[0].requires_grad_(), "gradient": made[1]}

    def training(self) -> Run:
        """A function that runs a forward and backward pass of the layer."""
        self.model.train()
        x, gradient = self.sample["x"], self.sample["gradient"]

        def step() -> None:
            self.model.zero_grad()
            x.grad = None
            self.layer.compute(x).backward(gradient)

        return step
