"""Self-attention layers of other libraries, with the sizes and weights of ours.

Each is built as its own documentation does it, with its fused attention where it has a choice, and
is timed only if its outputs are those of our layer.
"""

import argparse
import contextlib
import shlex
import sys
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch
import torch.nn.functional as F
from fairseq.modules import MultiheadAttention
from torch import Tensor, nn

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.packages import import_extra
from fairseq_posenc.benchmark.layers import Layer, plug_in_layer

CHECKED = 100  # tokens on which a peer is compared with our layer
PROJECTIONS = ("q_proj", "k_proj", "v_proj", "out_proj")


class Request(NamedTuple):
    """The layer that a peer should build.

    Args:
        entry: for messages.
        ours: our layer, with the same mathematics.
        length: T.
        causal: hide later keys.
    """

    entry: str
    ours: Layer
    length: int
    causal: bool

    @property
    def like(self) -> Tensor:
        """A tensor of the dtype and on the device of our layer."""
        return next(self.ours.module.parameters())

    def causal_mask(self) -> Optional[Tensor]:
        """(T, T), -inf at later keys; None if the layer is not causal."""
        hidden = self.like.new_full((self.length, self.length), float("-inf")).triu(1)
        return hidden if self.causal else None

    def package(self, module: str) -> Any:
        """Import a package of the peer."""
        return import_extra(module, f"--archs {self.entry}")


class Peer(NamedTuple):
    """A peer of the one-layer benchmark.

    Args:
        build: makes its layer, with weights of its own.
        ours: flags of our layer with the same mathematics.
        agrees: a version known to agree.
        projections: paths of its query, key, value and output projections.
    """

    build: Callable[[Request], Layer]
    ours: Sequence[str]
    agrees: str
    projections: Sequence[str] = PROJECTIONS


def stock(wanted: Request) -> Layer:
    """fairseq's attention, time first as in its models; it has no positions."""
    ours, mask = wanted.ours, wanted.causal_mask()
    heads = ours.module.num_heads
    theirs = MultiheadAttention(ours.channels, heads, self_attention=True)

    def compute(x: Tensor) -> Tensor:
        return theirs(x, x, x, need_weights=False, attn_mask=mask)[0]

    return Layer(theirs, compute, ours.channels, batch_first=False)


def x_transformers(wanted: Request) -> Layer:
    """Attention of x-transformers with its rotary embedding, which a stack computes once."""
    package = wanted.package("x_transformers.x_transformers")
    ours = wanted.ours
    sizes = {"dim_head": ours.module.head_dim, "heads": ours.module.num_heads}
    theirs = package.Attention(ours.channels, causal=wanted.causal, flash=True, **sizes)
    rotary = package.RotaryEmbedding(ours.module.head_dim)
    table = rotary.to(wanted.like.device).forward_from_seq_len(wanted.length)
    return Layer(theirs, lambda x: theirs(x, rotary_pos_emb=table), ours.channels)


class _Rotated(nn.Module):
    """Projections and fused attention around :mod:`rotary_embedding_torch`, as its page shows it.

    Args:
        wanted: the layer to build.
    """

    def __init__(self, wanted: Request) -> None:
        super().__init__()
        ours, package = wanted.ours, wanted.package("rotary_embedding_torch")
        self.heads, self.causal = ours.module.num_heads, wanted.causal
        for name in PROJECTIONS:
            self.add_module(name, nn.Linear(ours.channels, ours.channels))
        self.rotary = package.RotaryEmbedding(ours.module.head_dim)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            getattr(self, name)(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for name in PROJECTIONS[:3]
        )  # (B, H, T, D)
        q, k = self.rotary.rotate_queries_or_keys(q), self.rotary.rotate_queries_or_keys(k)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.get_submodule("out_proj")(out.transpose(1, 2).flatten(2))


def rotary_embedding_torch(wanted: Request) -> Layer:
    """rotary-embedding-torch with PyTorch's fused attention."""
    theirs = _Rotated(wanted)
    return Layer(theirs, theirs, wanted.ours.channels)


def torchscale(wanted: Request) -> Layer:
    """Attention of torchscale with xPos, whose decay is set so slow that rotary remains."""
    package = wanted.package("torchscale.component.multihead_attention")
    ours, mask = wanted.ours, wanted.causal_mask()
    options = argparse.Namespace(multiway=False, xpos_rel_pos=True, xpos_scale_base=1e9)
    theirs = package.MultiheadAttention(
        options, ours.channels, ours.module.num_heads, self_attention=True
    )
    return Layer(theirs, lambda x: theirs(x, x, x, attn_mask=mask)[0], ours.channels)


def hf_roformer(wanted: Request) -> Layer:
    """Hugging Face's RoFormer attention and output projection, without its layer norm."""
    package = wanted.package("transformers.models.roformer.modeling_roformer")
    ours, mask = wanted.ours, wanted.causal_mask()
    config = package.RoFormerConfig(
        hidden_size=ours.channels,
        num_attention_heads=ours.module.num_heads,
        attention_probs_dropout_prob=0.0,
    )
    theirs: Any = nn.Module()
    theirs.attention = package.RoFormerSelfAttention(config)
    theirs.output = nn.Linear(ours.channels, ours.channels)
    positions = torch.arange(wanted.length, dtype=torch.float64)
    powers = torch.arange(0, ours.module.head_dim, 2) / ours.module.head_dim
    angles = positions.unsqueeze(1) / 10000**powers
    table = torch.cat((angles.sin(), angles.cos()), dim=-1).to(wanted.like)[None, None]

    def compute(x: Tensor) -> Tensor:
        return theirs.output(theirs.attention(x, attention_mask=mask, sinusoidal_pos=table)[0])

    return Layer(theirs, compute, ours.channels)


def performer(wanted: Request) -> Layer:
    """The layer of performer-pytorch, without positions and with the features of ours."""
    package = wanted.package("performer_pytorch")
    ours, favor = wanted.ours, wanted.ours.module.feature_map
    relu = favor.kernel == "relu"
    with contextlib.redirect_stdout(sys.stderr):  # it prints that its CUDA extension is missing
        theirs = package.SelfAttention(
            ours.channels,
            causal=wanted.causal,
            heads=ours.module.num_heads,
            dim_head=ours.module.head_dim,
            nb_features=favor.projection.size(0),
            generalized_attention=relu,
            qkv_bias=True,
        )
    theirs.fast_attention.projection_matrix.copy_(favor.projection)
    # its causal stabiliser depends on later tokens
    return Layer(theirs, theirs, ours.channels, comparable=relu or not wanted.causal)


_SOFTMAX = ("--attention", "softmax")
_TO = ("to_q", "to_k", "to_v", "to_out")
_HF = ("attention.query", "attention.key", "attention.value", "output")
_NONE = ("--position-encoding", "none")

PEERS: Dict[str, Peer] = {
    "stock": Peer(stock, (*_SOFTMAX, *_NONE), "fairseq 0.12.2"),
    "x-transformers": Peer(x_transformers, _SOFTMAX, "x-transformers 2.31.10", _TO),
    "rotary-embedding-torch": Peer(
        rotary_embedding_torch, _SOFTMAX, "rotary-embedding-torch 0.9.1"
    ),
    "torchscale": Peer(torchscale, _SOFTMAX, "torchscale 0.3.0"),
    "hf-roformer": Peer(hf_roformer, _SOFTMAX, "transformers 4.57.6", _HF),
    "performer-pytorch": Peer(
        performer, ("--attention", "favor", *_NONE), "performer-pytorch 1.1.4", _TO
    ),
}


def peer_layer(entry: str, args: argparse.Namespace, causal: bool) -> Layer:
    """The layer of another library, after a comparison with ours on a short sequence.

    Args:
        entry: name of the peer, optionally followed by flags of our layer.
        args: the command line.
        causal: the decoder's layer instead of the encoder's.

    Raises:
        UsageError: the package is missing, or its outputs differ from ours.
    """
    name, *flags = shlex.split(entry)
    short = argparse.Namespace(**{**vars(args), "length": [CHECKED]})
    ours, theirs = _pair(entry, PEERS[name], flags, short, causal)
    if theirs.comparable:
        _compare(entry, PEERS[name], ours, theirs)
    return _pair(entry, PEERS[name], flags, args, causal)[1]


@torch.no_grad()
def _pair(
    entry: str, peer: Peer, flags: List[str], args: argparse.Namespace, causal: bool
) -> Tuple[Layer, Layer]:
    """Our layer and the peer's, with the same weights; without biases if the peer has none."""
    ours = plug_in_layer(entry, [*peer.ours, *flags], args, causal)
    wanted = Request(entry, ours, args.length[0], causal)
    theirs = peer.build(wanted)
    theirs.module.to(wanted.like)
    for name, path in zip(PROJECTIONS, peer.projections):
        source, target = ours.module.get_submodule(name), theirs.module.get_submodule(path)
        target.weight.copy_(source.weight)
        if target.bias is None:
            source.bias.zero_()
        else:
            target.bias.copy_(source.bias)
    return ours, theirs


@torch.no_grad()
def _compare(entry: str, peer: Peer, ours: Layer, theirs: Layer) -> None:
    x = torch.randn(1, CHECKED, ours.channels).to(next(ours.module.parameters()))
    want, got = ours.compute(x), theirs.laid_out(theirs.compute(theirs.laid_out(x)))
    difference = ((want - got).abs().max() / want.abs().max()).item()
    if not difference < 1e-3:
        raise UsageError(
            f"--archs {entry}: with the same weights its outputs differ from ours by "
            f"{difference:.1e} of the largest; {peer.agrees} is known to agree"
        )
