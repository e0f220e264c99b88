"""The attention jobs: single self-attention layers, as in the plug-in's models."""

import argparse
import contextlib
import shlex
import sys
from typing import Any, Callable, List, NamedTuple

import torch
from torch import Tensor, nn

from fairseq_posenc.attention.registry import ATTENTIONS
from fairseq_posenc.benchmark.translation import Run, TranslationSubject
from fairseq_posenc.errors import UsageError
from fairseq_posenc.extras import import_extra
from fairseq_posenc.modules.stack import Padding, layer_positions
from fairseq_posenc.options import Layer as FairseqLayer

PEER = "performer-pytorch"
CHECKED = 100  # tokens on which a peer layer is compared with ours


class Layer(NamedTuple):
    """A self-attention layer with its projections, and a function that applies it.

    Args:
        module: the layer.
        compute: (B, T, C) -> (B, T, C).
        channels: C.
    """

    module: Any
    compute: Callable[[Tensor], Tensor]
    channels: int


def check_entry(entry: str) -> None:
    """Refuse an entry that does not begin with the name of an attention.

    Raises:
        UsageError: listing the known attentions.
    """
    name = (shlex.split(entry) or [""])[0]
    if name not in ATTENTIONS and name != PEER:
        known = ", ".join([*ATTENTIONS, PEER])
        raise UsageError(f"--archs {entry!r}: with --lengths an entry begins with one of {known}")


class AttentionSubject:
    """The self-attention of an encoder and that of a decoder, and a batch without padding.

    Args:
        entry: a value of ``--attention``, optionally followed by model flags; or :data:`PEER` with
            the flags of ``--attention favor``.
        args: the command line.

    Raises:
        UsageError: the peer is missing or computes something else, or the encoding adds to logits.
    """

    def __init__(self, entry: str, args: argparse.Namespace) -> None:
        self.entry, self.args = entry, args
        name, *flags = shlex.split(entry)
        build = performer_layer if name == PEER else plug_in_layer
        given = (entry, flags if name == PEER else ["--attention", name, *flags], args)
        self.encoder, self.decoder = (build(*given, causal) for causal in (False, True))
        self.model: nn.Module = self.encoder.module

    def start(self, job: str) -> Run:
        """Return a function that runs *job* once."""
        return self.bidirectional() if job == "attention" else self.causal()

    def bidirectional(self) -> Run:
        """Return a function for a forward and backward pass of the encoder's layer."""
        return self._training(self.encoder)

    def causal(self) -> Run:
        """Return a function for a forward and backward pass of the decoder's layer."""
        return self._training(self.decoder)

    def _training(self, layer: Layer) -> Run:
        layer.module.train()
        size = (self.args.batch, self.args.length[0], layer.channels)
        draw = torch.Generator().manual_seed(self.args.seed)
        like = next(layer.module.parameters())
        x, gradient = (torch.randn(size, generator=draw).to(like) for _ in range(2))
        x.requires_grad_()

        def step() -> None:
            layer.module.zero_grad()
            x.grad = None
            layer.compute(x).backward(gradient)

        return step


def plug_in_layer(entry: str, flags: List[str], args: argparse.Namespace, causal: bool) -> Layer:
    """The layer of a translation model, with its stack's per-forward inputs computed once.

    Args:
        entry: for messages.
        flags: flags of the model, added to those of all entries.
        args: the command line.
        causal: the decoder's layer instead of the encoder's.

    Raises:
        UsageError: the encoding adds to the logits; its gradient would involve the whole stack.
    """
    words = ["posenc_transformer", "--position-encoding", "rotary", "--attention-dropout", "0"]
    model: Any = TranslationSubject(shlex.join([*words, *flags]), args).model
    stack = model.decoder if causal else model.encoder
    encoding, layer = stack.encoding, stack.layers[0]
    if encoding.shared_bias is not None or encoding.content:
        raise UsageError(
            f"--archs {entry!r}: --position-encoding {encoding.name} adds to the logits; with "
            "--lengths give rotary, sinusoidal, learned or none"
        )
    length, like = args.length[0], stack.embed_tokens.weight
    x = like.new_zeros(1, length, layer.embed_dim)
    given = layer_positions(layer, stack.positions_of_layers(x, length, Padding(), causal))
    attention = layer.self_attn
    return Layer(attention, lambda x: attention(x, **given)[0], layer.embed_dim)


def performer_layer(entry: str, flags: List[str], args: argparse.Namespace, causal: bool) -> Layer:
    """The layer of performer-pytorch, without positions, with the weights of our layer.

    Arguments as for :func:`plug_in_layer`.

    Raises:
        UsageError: the package is missing, or its outputs differ from ours.
    """
    package = import_extra("performer_pytorch", f"--archs {entry}")
    alike = ["--attention", "favor", "--position-encoding", "none"]
    ours = plug_in_layer(entry, [*alike, *flags], args, causal)
    favor = ours.module.feature_map
    relu = favor.kernel == "relu"
    with contextlib.redirect_stdout(sys.stderr):  # it prints that its CUDA extension is missing
        theirs = package.SelfAttention(
            ours.channels,
            causal=causal,
            heads=ours.module.num_heads,
            dim_head=ours.module.head_dim,
            nb_features=favor.projection.size(0),
            generalized_attention=relu,
            qkv_bias=True,
        ).to(next(ours.module.parameters()))
    _copy(ours.module, theirs)
    peer = Layer(theirs, theirs, ours.channels)
    if relu or not causal:  # its causal stabiliser depends on later tokens
        _compare(entry, ours, peer)
    return peer


@torch.no_grad()
def _copy(ours: FairseqLayer, theirs: FairseqLayer) -> None:
    for name in ("q", "k", "v", "out"):
        target, source = getattr(theirs, f"to_{name}"), getattr(ours, f"{name}_proj")
        target.weight.copy_(source.weight)
        target.bias.copy_(source.bias)
    theirs.fast_attention.projection_matrix.copy_(ours.feature_map.projection)


@torch.no_grad()
def _compare(entry: str, ours: Layer, theirs: Layer) -> None:
    x = torch.randn(1, CHECKED, ours.channels).to(next(ours.module.parameters()))
    want, got = ours.compute(x), theirs.compute(x)
    difference = ((want - got).abs().max() / want.abs().max()).item()
    if not difference < 1e-3:
        raise UsageError(
            f"--archs {entry}: with the same weights its outputs differ from ours by "
            f"{difference:.1e} of the largest; performer-pytorch 1.1.4 is known to agree"
        )
