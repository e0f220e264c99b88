"""Single self-attention layers, as in the plug-in's models, and their forward and backward pass."""

import argparse
import functools
import shlex
from typing import Any, Callable, List, NamedTuple

import torch
from torch import Tensor, nn

from fairseq_posenc.attention.base import ATTENTIONS
from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.benchmark.models import MaskedLMSubject, Run, Subject, TranslationSubject
from fairseq_posenc.stacks.padding import Keys, Padding
from fairseq_posenc.stacks.positions import positions_of


class Layer(NamedTuple):
    """A self-attention layer with its projections, and a function that applies it."""

    module: Any  # the layer
    # (B, T, C) -> (B, T, C), or, if not *batch_first*, (T, B, C) -> (T, B, C)
    compute: Callable[[Tensor], Tensor]
    channels: int  # C
    batch_first: bool = True  # the layout that the layer has in its own models
    # with the same weights, its outputs should equal those of our layer
    comparable: bool = True

    def laid_out(self, x: Tensor) -> Tensor:
        """*x* (B, T, C) in the layout of the layer, and back."""
        return x if self.batch_first else x.transpose(0, 1).contiguous()


def plug_in_layer(entry: str, flags: List[str], args: argparse.Namespace, causal: bool) -> Layer:
    """The layer of a translation model, with its stack's per-forward inputs computed once.

    Attention that is for bidirectional stacks alone is taken from a masked language model.

    Args:
        entry: for messages.
        flags: flags of the model, added to those of all entries.
        causal: the decoder's layer instead of the encoder's.

    Raises:
        UsageError: the encoding adds to the logits; its gradient would involve the whole stack.
    """
    words = ["--position-encoding", "rotary", "--attention-dropout", "0", *flags]
    kernel = ATTENTIONS.find(flags[flags.index("--attention") + 1]).thing
    masked = kernel.abilities.bidirectional_only and not causal
    kind = MaskedLMSubject if masked else TranslationSubject
    model: Any = kind(shlex.join([kind.generic, *words]), args).model
    stack = model.decoder if causal else model.encoder
    stack = stack.sentence_encoder if masked else stack
    encoding, layer = stack.encoding, stack.layers[0]
    if encoding.shared_bias is not None or encoding.content:
        raise UsageError(
            f"--archs {entry!r}: --position-encoding {encoding.name} adds to the logits; with "
            "--lengths give rotary, sinusoidal, learned or none"
        )
    length, like = args.length[0], stack.embed_tokens.weight
    x = like.new_zeros(args.batch, length, layer.embed_dim)
    keys = Keys(length, Padding(), causal)
    given = positions_of(layer, stack.positions.of_layers(x, keys))
    attention = layer.self_attn
    return Layer(attention, lambda x: attention(x, **given), layer.embed_dim)


class AttentionSubject(Subject):
    """The self-attention of an encoder and of a decoder, and a batch without padding.

    Args:
        entry: a value of ``--attention``, optionally followed by flags of the model.

    Raises:
        UsageError: the encoding adds to logits.
    """

    known = ATTENTIONS

    def __init__(self, entry: str, args: argparse.Namespace) -> None:
        self.entry, self.args = entry, args
        self.model: nn.Module = self.of(args.jobs[0]).module

    @classmethod
    def check(cls, entry: str, jobs: List[str]) -> None:
        """Refuse an entry of ``--archs`` that does not begin with a known attention.

        Raises:
            UsageError: listing the known attentions.
        """
        if (shlex.split(entry) or [""])[0] not in cls.known:
            raise UsageError(
                f"--archs {entry!r}: with --lengths an entry begins with one of "
                + ", ".join(cls.known)
            )

    @functools.cached_property
    def encoder(self) -> Layer:
        """The layer of an encoder."""
        return self.layer(causal=False)

    @functools.cached_property
    def decoder(self) -> Layer:
        """The layer of a decoder, built when it is first asked for: some attentions have none."""
        return self.layer(causal=True)

    def of(self, job: str) -> Layer:
        """The layer that *job* names."""
        return self.encoder if job == "attention" else self.decoder

    def layer(self, causal: bool) -> Layer:
        """The layer of the encoder, or the *causal* one of the decoder."""
        name, *flags = shlex.split(self.entry)
        return plug_in_layer(self.entry, ["--attention", name, *flags], self.args, causal)

    def start(self, job: str) -> Run:
        """A function for a forward and backward pass of the layer that *job* names."""
        layer = self.of(job)
        layer.module.train()
        size = (self.args.batch, self.args.length[0], layer.channels)
        draw = torch.Generator().manual_seed(self.args.seed)
        like = next(layer.module.parameters())
        x, gradient = (layer.laid_out(torch.randn(size, generator=draw)).to(like) for _ in range(2))
        x.requires_grad_()

        def step() -> None:
            layer.module.zero_grad()
            x.grad = None
            layer.compute(x).backward(gradient)

        return step
