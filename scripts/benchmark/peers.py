"""Other libraries' attention layers, with the sizes and weights of ours, and a masked LM.

Each layer is built as its library's documentation shows, with fused attention if there is a choice,
and is timed only if its outputs equal those of our layer.
"""

import argparse
import contextlib
import sys
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence

import torch
import torch.nn.functional as F
from fairseq.modules import MultiheadAttention
from torch import Tensor, nn

from attention_layers import AttentionSubject, Layer, plug_in_layer
from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.packages import import_extra
from subjects import SIZES, MaskedLMSubject

CHECKED = 100  # number of tokens on which a peer is compared with our layer
PROJECTIONS = ("q_proj", "k_proj", "v_proj", "out_proj")
TO = ("to_q", "to_k", "to_v", "to_out")
ROTARY = ("softmax",)
NO_POSITIONS = ("--position-encoding", "none")


class Request:
    """What a peer should build: a layer with the sizes of *ours*, for *length* tokens."""

    def __init__(self, ours: Layer, length: int, causal: bool) -> None:
        self.ours, self.length, self.causal, self.channels = ours, length, causal, ours.channels
        self.heads, self.head_dim = ours.module.num_heads, ours.module.head_dim
        self.like = next(ours.module.parameters())

    def causal_mask(self) -> Optional[Tensor]:
        """The mask (T, T) with -inf at later keys; None if the layer is not causal."""
        hidden = self.like.new_full((self.length, self.length), float("-inf")).triu(1)
        return hidden if self.causal else None

    def projections(self) -> nn.ModuleDict:
        """Projections for a library that has only the attention itself."""
        sizes = (self.channels, self.channels)
        return nn.ModuleDict({name: nn.Linear(*sizes) for name in PROJECTIONS})


def stock(wanted: Request, _: Any) -> Layer:
    """fairseq's attention, which has no positions, with time first as in its models."""
    mask, sizes = wanted.causal_mask(), (wanted.channels, wanted.heads)
    theirs = MultiheadAttention(*sizes, self_attention=True)
    compute = lambda x: theirs(x, x, x, need_weights=False, attn_mask=mask)[0]  # noqa: E731
    return Layer(theirs, compute, wanted.channels, batch_first=False)


def x_transformers(wanted: Request, package: Any) -> Layer:
    """x-transformers' attention with its rotary table, computed once as in its stacks."""
    sizes = {"dim_head": wanted.head_dim, "heads": wanted.heads}
    theirs = package.Attention(wanted.channels, causal=wanted.causal, flash=True, **sizes)
    rotary = package.RotaryEmbedding(wanted.head_dim).to(wanted.like.device)
    table = rotary.forward_from_seq_len(wanted.length)
    return Layer(theirs, lambda x: theirs(x, rotary_pos_emb=table), wanted.channels)


def rotary_embedding_torch(wanted: Request, package: Any) -> Layer:
    """rotary-embedding-torch with PyTorch's fused attention, as its documentation shows."""
    theirs = wanted.projections()
    theirs["rotary"] = rotary = package.RotaryEmbedding(wanted.head_dim)

    def compute(x: Tensor) -> Tensor:
        heads = [theirs[name](x).unflatten(-1, (wanted.heads, -1)) for name in PROJECTIONS[:3]]
        q, k, v = (each.transpose(1, 2) for each in heads)  # (B, H, T, D)
        q, k = rotary.rotate_queries_or_keys(q), rotary.rotate_queries_or_keys(k)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=wanted.causal)
        return theirs["out_proj"](out.transpose(1, 2).flatten(2))

    return Layer(theirs, compute, wanted.channels)


def performer(wanted: Request, package: Any) -> Layer:
    """The layer of performer-pytorch, without positions and with the features of our layer."""
    favor = wanted.ours.module.feature_map
    relu, features = favor.kernel == "relu", favor.projection.size(0)
    sizes = {"heads": wanted.heads, "dim_head": wanted.head_dim, "nb_features": features}
    form = {"causal": wanted.causal, "generalized_attention": relu, "qkv_bias": True}
    with contextlib.redirect_stdout(sys.stderr):  # it prints that its CUDA extension is missing
        theirs = package.SelfAttention(wanted.channels, **sizes, **form)
    theirs.fast_attention.projection_matrix.copy_(favor.projection)
    # the library's causal stabiliser depends on later tokens
    return Layer(theirs, theirs, wanted.channels, comparable=relu or not wanted.causal)


def linear_attention(wanted: Request, package: Any) -> Layer:
    """flash-linear-attention's causal linear attention with ELU features; needs a GPU."""
    theirs = wanted.projections()

    def compute(x: Tensor) -> Tensor:
        heads = [theirs[name](x).unflatten(-1, (wanted.heads, -1)) for name in PROJECTIONS[:3]]
        q, k, v = F.elu(heads[0]) + 1, F.elu(heads[1]) + 1, heads[2]
        out = package.chunk_linear_attn(q, k, v, scale=1.0, normalize=True)[0]
        return theirs["out_proj"](out.to(x.dtype).flatten(2))

    return Layer(theirs, compute, wanted.channels)


class Peer(NamedTuple):
    """A layer of another library: how to build and to install it."""

    build: Callable[[Request, Any], Layer]  # called with a request and the imported *module*
    module: str
    install: str  # arguments of ``pip install``
    agrees: str  # a version that is known to give our outputs
    ours: Sequence[str] = ROTARY  # our ``--attention`` of the same mathematics, and its flags
    projections: Sequence[str] = PROJECTIONS  # names of the four projections, in this order


_XT = "x-transformers"
_ROT = "rotary-embedding-torch"
_PERFORMER = ("performer_pytorch", "performer-pytorch", "performer-pytorch 1.1.4")
_FLA = ("fla.ops.linear_attn", "fla-core", "fla-core 0.4")

PEERS: Dict[str, Peer] = {
    "stock": Peer(stock, "fairseq", "fairseq", "fairseq 0.12.2", (*ROTARY, *NO_POSITIONS)),
    _XT: Peer(x_transformers, "x_transformers.x_transformers", _XT, f"{_XT} 2.31", ROTARY, TO),
    _ROT: Peer(rotary_embedding_torch, "rotary_embedding_torch", _ROT, f"{_ROT} 0.9.1"),
    "performer-pytorch": Peer(performer, *_PERFORMER, ("favor", *NO_POSITIONS), TO),
    "flash-linear-attention": Peer(linear_attention, *_FLA, ("elu", *NO_POSITIONS)),
}


class AttentionOrPeer(AttentionSubject):
    """A self-attention layer of the plug-in, or a peer's layer that computes the same."""

    def make_layer(self, words: List[str], causal: bool) -> Layer:
        """Our layer, or a peer's layer, which is first compared with ours on a short sequence.

        Raises:
            UsageError: the peer's package is missing, or its outputs differ from ours.
        """
        name, *flags = words
        if name not in PEERS:
            return super().make_layer(words, causal)
        short = argparse.Namespace(**{**vars(self.args), "length": [CHECKED]})
        self._pair(name, flags, short, causal, compared=True)
        return self._pair(name, flags, self.args, causal)

    @torch.no_grad()
    def _pair(
        self,
        name: str,
        flags: List[str],
        args: argparse.Namespace,
        causal: bool,
        compared: bool = False,
    ) -> Layer:
        """The peer's layer with our weights; if the peer has no biases, ours become zero."""
        peer, dtype = PEERS[name], getattr(torch, args.dtype)
        ours = plug_in_layer(["--attention", *peer.ours, *flags], args, causal)
        ours.module.to(args.device, dtype)
        wanted = Request(ours, args.length[0], causal)
        theirs = peer.build(wanted, import_extra(peer.module, f"--archs {name}", peer.install))
        theirs.module.to(wanted.like)
        for each, path in zip(PROJECTIONS, peer.projections):
            source, target = ours.module.get_submodule(each), theirs.module.get_submodule(path)
            target.weight.copy_(source.weight)
            if target.bias is None:
                source.bias.zero_()
            else:
                target.bias.copy_(source.bias)
        if compared and theirs.comparable:
            x = torch.randn(1, CHECKED, ours.channels).to(wanted.like)
            want, got = ours.compute(x), theirs.laid_out(theirs.compute(theirs.laid_out(x)))
            difference = ((want - got).abs().max() / want.abs().max()).item()
            if not difference < (1e-3 if dtype is torch.float32 else 3e-2):
                raise UsageError(
                    f"--archs {name}: with the same weights, its outputs differ from ours by "
                    f"{difference:.1e} of our largest output; {peer.agrees} is known to agree"
                )
        return theirs


class MaskedLMOrPeer(MaskedLMSubject):
    """A masked language model of fairseq, of the plug-in, or Hugging Face's RoFormer."""

    def build(self, words: List[str]) -> nn.Module:
        """A model from an architecture and its flags, or a RoFormer with ``--layers`` layers."""
        if words != ["hf-roformer"]:
            return super().build(words)
        package, self.task = (
            import_extra("transformers", "--archs hf-roformer"),
            self.make_task(None),
        )
        channels, ffn, heads = SIZES[self.args.size]
        sizes = {"hidden_size": channels, "embedding_size": channels, "intermediate_size": ffn}
        sizes.update(num_attention_heads=heads, num_hidden_layers=self.args.layers)
        sizes.update(max_position_embeddings=self.args.length[0])
        torch.manual_seed(self.args.seed)
        vocabulary = len(self.task.source_dictionary)
        config = package.RoFormerConfig(vocab_size=vocabulary, **sizes)
        return package.RoFormerForMaskedLM(config)

    def loss(self) -> Tensor:
        """The loss of the batch, summed."""
        if hasattr(self, "criterion"):
            return super().loss()
        logits = self.model(self.sample["net_input"]["src_tokens"]).logits.flatten(0, 1)
        ignored, target = self.task.source_dictionary.pad(), self.sample["target"].flatten()
        return F.cross_entropy(logits, target, ignore_index=ignored, reduction="sum")
