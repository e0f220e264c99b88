"""The attention jobs: single self-attention layers, ours and those of other libraries."""

import argparse
import functools
import shlex

import torch
from torch import nn

from fairseq_posenc.attention.registry import ATTENTIONS
from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.benchmark.attention_peers import PEERS, peer_layer
from fairseq_posenc.benchmark.layers import Layer, plug_in_layer
from fairseq_posenc.benchmark.translation import Run


def check_entry(entry: str) -> None:
    """Refuse an entry that does not begin with the name of an attention or of a peer.

    Raises:
        UsageError: listing the known attentions.
    """
    name = (shlex.split(entry) or [""])[0]
    if name not in ATTENTIONS and name not in PEERS:
        known = ", ".join([*ATTENTIONS, *PEERS])
        raise UsageError(f"--archs {entry!r}: with --lengths an entry begins with one of {known}")


class AttentionSubject:
    """The self-attention of an encoder and that of a decoder, and a batch without padding.

    Args:
        entry: a value of ``--attention`` or the name of a peer, optionally followed by flags of
            our model.
        args: the command line.

    Raises:
        UsageError: a peer is missing or computes something else, or the encoding adds to logits.
    """

    def __init__(self, entry: str, args: argparse.Namespace) -> None:
        self.entry, self.args = entry, args
        self.encoder = self._layer(causal=False)
        self.model: nn.Module = self.encoder.module

    @functools.cached_property
    def decoder(self) -> Layer:
        """The layer of a decoder, built when it is first asked for: some attentions have none."""
        return self._layer(causal=True)

    def _layer(self, causal: bool) -> Layer:
        name, *flags = shlex.split(self.entry)
        if name in PEERS:
            return peer_layer(self.entry, self.args, causal)
        return plug_in_layer(self.entry, ["--attention", name, *flags], self.args, causal)

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
        x, gradient = (layer.laid_out(torch.randn(size, generator=draw)).to(like) for _ in range(2))
        x.requires_grad_()

        def step() -> None:
            layer.module.zero_grad()
            x.grad = None
            layer.compute(x).backward(gradient)

        return step
