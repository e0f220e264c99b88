"""Self-attention layers of other libraries, with the sizes and weights of ours.

Each is built as its own documentation does it, with its fused attention where it has a choice, and
is timed only if its outputs are those of our layer.  One is ours with the rotation of PyTorch.
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

from fairseq_posenc import __version__
from fairseq_posenc.attention.base import ATTENTIONS
from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.packages import import_extra
from fairseq_posenc.benchmark.layers import AttentionSubject, Layer, plug_in_layer

CHECKED = 100  # tokens on which a peer is compared with our layer
PROJECTIONS = ("q_proj", "k_proj", "v_proj", "out_proj")


class Request(NamedTuple):
    """The layer that a peer should build: of the sizes of *ours*, for *length* tokens."""

    ours: Layer
    length: int
    causal: bool

    @property
    def sizes(self) -> Tuple[int, int, int]:
        """Channels, heads, and channels of a head."""
        return self.ours.channels, self.ours.module.num_heads, self.ours.module.head_dim

    @property
    def like(self) -> Tensor:
        """A tensor of the dtype and on the device of our layer."""
        return next(self.ours.module.parameters())

    def causal_mask(self) -> Optional[Tensor]:
        """(T, T), -inf at later keys; None if the layer is not causal."""
        hidden = self.like.new_full((self.length, self.length), float("-inf")).triu(1)
        return hidden if self.causal else None


class Peer(NamedTuple):
    """A layer of another library.

    Args:
        build: makes its layer from a request and a module of its package, with its own weights.
        module: that module.
        install: arguments of ``pip install``.
        agrees: a version known to agree.
        ours: flags of our layer with the same mathematics.
        projections: paths of its query, key, value and output projections.
    """

    build: Callable[[Request, Any], Layer]
    module: str
    install: str
    agrees: str
    ours: Sequence[str] = ("--attention", "softmax")
    projections: Sequence[str] = PROJECTIONS


def stock(wanted: Request, _: Any) -> Layer:
    """fairseq's attention, time first as in its models; it has no positions."""
    (channels, heads, _), mask = wanted.sizes, wanted.causal_mask()
    theirs = MultiheadAttention(channels, heads, self_attention=True)

    def compute(x: Tensor) -> Tensor:
        return theirs(x, x, x, need_weights=False, attn_mask=mask)[0]

    return Layer(theirs, compute, channels, batch_first=False)


def x_transformers(wanted: Request, package: Any) -> Layer:
    """Attention of x-transformers with its rotary embedding, which a stack computes once."""
    channels, heads, head_dim = wanted.sizes
    sizes = {"dim_head": head_dim, "heads": heads}
    theirs = package.Attention(channels, causal=wanted.causal, flash=True, **sizes)
    rotary = package.RotaryEmbedding(head_dim).to(wanted.like.device)
    table = rotary.forward_from_seq_len(wanted.length)
    return Layer(theirs, lambda x: theirs(x, rotary_pos_emb=table), channels)


class _Rotated(nn.Module):
    """Projections and fused attention around :mod:`rotary_embedding_torch`, as its page shows."""

    def __init__(self, wanted: Request, package: Any) -> None:
        super().__init__()
        channels, self.heads, head_dim = wanted.sizes
        self.causal = wanted.causal
        for name in PROJECTIONS:
            self.add_module(name, nn.Linear(channels, channels))
        self.rotary = package.RotaryEmbedding(head_dim)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            getattr(self, name)(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for name in PROJECTIONS[:3]
        )  # (B, H, T, D)
        q, k = self.rotary.rotate_queries_or_keys(q), self.rotary.rotate_queries_or_keys(k)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.get_submodule("out_proj")(out.transpose(1, 2).flatten(2))


def rotary_embedding_torch(wanted: Request, package: Any) -> Layer:
    """rotary-embedding-torch with PyTorch's fused attention."""
    theirs = _Rotated(wanted, package)
    return Layer(theirs, theirs, wanted.ours.channels)


def torchscale(wanted: Request, package: Any) -> Layer:
    """Attention of torchscale with xPos, whose decay is set so slow that rotary remains."""
    (channels, heads, _), mask = wanted.sizes, wanted.causal_mask()
    options = argparse.Namespace(multiway=False, xpos_rel_pos=True, xpos_scale_base=1e9)
    theirs = package.MultiheadAttention(options, channels, heads, self_attention=True)
    return Layer(theirs, lambda x: theirs(x, x, x, attn_mask=mask)[0], channels)


def hf_roformer(wanted: Request, package: Any) -> Layer:
    """Hugging Face's RoFormer attention and output projection, without its layer norm."""
    (channels, heads, head_dim), mask = wanted.sizes, wanted.causal_mask()
    sizes = {"hidden_size": channels, "num_attention_heads": heads}
    config = package.RoFormerConfig(attention_probs_dropout_prob=0.0, **sizes)
    theirs: Any = nn.Module()
    theirs.attention = package.RoFormerSelfAttention(config)
    theirs.output = nn.Linear(channels, channels)
    positions = torch.arange(wanted.length, dtype=torch.float64)
    angles = positions.unsqueeze(1) / 10000 ** (torch.arange(0, head_dim, 2) / head_dim)
    table = torch.cat((angles.sin(), angles.cos()), dim=-1).to(wanted.like)[None, None]

    def compute(x: Tensor) -> Tensor:
        return theirs.output(theirs.attention(x, attention_mask=mask, sinusoidal_pos=table)[0])

    return Layer(theirs, compute, channels)


def pytorch_rotation(wanted: Request, rotary: Any) -> Layer:
    """Our layer, which PyTorch's operations rotate where a GPU has a kernel for it."""

    def compute(x: Tensor) -> Tensor:
        kernel_for, rotary.kernel_for = rotary.kernel_for, lambda _: None
        try:
            return wanted.ours.compute(x)
        finally:
            rotary.kernel_for = kernel_for

    # in half precision the two round differently, by more than a comparison allows
    return Layer(wanted.ours.module, compute, wanted.ours.channels, comparable=False)


def performer(wanted: Request, package: Any) -> Layer:
    """The layer of performer-pytorch, without positions and with the features of ours."""
    (channels, heads, head_dim), favor = wanted.sizes, wanted.ours.module.feature_map
    relu = favor.kernel == "relu"
    with contextlib.redirect_stdout(sys.stderr):  # it prints that its CUDA extension is missing
        theirs = package.SelfAttention(
            channels,
            causal=wanted.causal,
            heads=heads,
            dim_head=head_dim,
            nb_features=favor.projection.size(0),
            generalized_attention=relu,
            qkv_bias=True,
        )
    theirs.fast_attention.projection_matrix.copy_(favor.projection)
    # its causal stabiliser depends on later tokens
    return Layer(theirs, theirs, channels, comparable=relu or not wanted.causal)


_NONE = ("--position-encoding", "none")
_TO = ("to_q", "to_k", "to_v", "to_out")
_HF = ("attention.query", "attention.key", "attention.value", "output")
_ROTARY_TORCH = ("rotary_embedding_torch", "rotary-embedding-torch")
_TORCHSCALE = ("torchscale.component.multihead_attention", "--no-deps torchscale")
_ROFORMER = ("transformers.models.roformer.modeling_roformer", "transformers")
_SOFTMAX = ("--attention", "softmax")

PEERS: Dict[str, Peer] = {
    "stock": Peer(stock, "fairseq", "fairseq", "fairseq 0.12.2", (*_SOFTMAX, *_NONE)),
    "x-transformers": Peer(
        *(x_transformers, "x_transformers.x_transformers", "x-transformers"),
        *("x-transformers 2.31.10", _SOFTMAX, _TO),
    ),
    "rotary-embedding-torch": Peer(
        rotary_embedding_torch, *_ROTARY_TORCH, "rotary-embedding-torch 0.9.1"
    ),
    # torchscale requires old packages that its attention does not use
    "torchscale": Peer(torchscale, *_TORCHSCALE, "torchscale 0.3.0"),
    "hf-roformer": Peer(hf_roformer, *_ROFORMER, "transformers 4.57.6", _SOFTMAX, _HF),
    "pytorch-rotation": Peer(
        pytorch_rotation, "fairseq_posenc.encodings.rotary", "fairseq_posenc", __version__
    ),
    "performer-pytorch": Peer(
        *(performer, "performer_pytorch", "performer-pytorch"),
        *("performer-pytorch 1.1.4", ("--attention", "favor", *_NONE), _TO),
    ),
}


class AttentionOrPeer(AttentionSubject):
    """Self-attention layers of the plug-in, or of a peer that computes the same."""

    known = (*ATTENTIONS, *PEERS)

    def layer(self, causal: bool) -> Layer:
        """Our layer, or the peer's after a comparison with ours on a short sequence.

        Raises:
            UsageError: the package is missing, or its outputs differ from ours.
        """
        name, *flags = shlex.split(self.entry)
        if name not in PEERS:
            return super().layer(causal)
        short = argparse.Namespace(**{**vars(self.args), "length": [CHECKED]})
        ours, theirs = self._pair(PEERS[name], flags, short, causal)
        if theirs.comparable:
            self._compare(PEERS[name], ours, theirs)
        return self._pair(PEERS[name], flags, self.args, causal)[1]

    @torch.no_grad()
    def _pair(
        self, peer: Peer, flags: List[str], args: argparse.Namespace, causal: bool
    ) -> Tuple[Layer, Layer]:
        """Our layer and the peer's with the same weights; without biases if the peer has none."""
        ours = plug_in_layer(self.entry, [*peer.ours, *flags], args, causal)
        wanted = Request(ours, args.length[0], causal)
        package = import_extra(peer.module, f"--archs {self.entry}", peer.install)
        theirs = peer.build(wanted, package)
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
    def _compare(self, peer: Peer, ours: Layer, theirs: Layer) -> None:
        x = torch.randn(1, CHECKED, ours.channels).to(next(ours.module.parameters()))
        want, got = ours.compute(x), theirs.laid_out(theirs.compute(theirs.laid_out(x)))
        difference = ((want - got).abs().max() / want.abs().max()).item()
        if not difference < 1e-3:
            raise UsageError(
                f"--archs {self.entry}: with the same weights its outputs differ from ours by "
                f"{difference:.1e} of the largest; {peer.agrees} is known to agree"
            )
