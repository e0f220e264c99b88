"""fairseq's encoder and decoder layers, with masks and positions as explicit arguments.

The sub-layers, their order, parameter names and flags (dropout, pre- and post-norm, quantisation
noise, learned scales) are those of fairseq.  Only the attention and the choice of norms and
feed-forwards differ.
"""

from typing import Any, Callable, Optional, Tuple, Union, cast

import torch
import torch.nn.functional as F
from fairseq.distributed import fsdp_wrap
from fairseq.modules import transformer_layer as stock
from fairseq.modules.checkpoint_activations import checkpoint_wrapper
from fairseq.modules.fairseq_dropout import FairseqDropout
from torch import Tensor, nn

from fairseq_posenc.attention import AttentionKernel, kernel_of
from fairseq_posenc.attention.cache import IncrementalState
from fairseq_posenc.attention.functional import drop, dropout_rate
from fairseq_posenc.attention.grouped import kv_heads_of
from fairseq_posenc.attention.softmax import CrossAttention
from fairseq_posenc.compat.fast_path import no_fast_path
from fairseq_posenc.encodings import PositionEncoding
from fairseq_posenc.flags.options import Layer, Options
from fairseq_posenc.layers.feed_forward import FEED_FORWARDS
from fairseq_posenc.layers.parameters import apply_norms_and_biases

#: A keyword argument that ``AttentionKernel.prepare`` returned.
Prepared = Union[None, bool, int, Tensor]


def wrap_layer(layer: nn.Module, cfg: Options) -> nn.Module:
    """Wrap a layer for activation checkpointing and FSDP, as the flags select.

    A checkpointed layer is always an FSDP unit, whatever its size, as in fairseq.
    """
    if cfg.checkpoint_activations:
        layer = checkpoint_wrapper(layer, offload_to_cpu=cfg.offload_activations)
        layer.register_forward_pre_hook(_with_gradient)
        return fsdp_wrap(layer, min_num_params=0)
    return fsdp_wrap(layer, min_num_params=cfg.min_params_to_wrap)


def _with_gradient(layer: nn.Module, inputs: Tuple[Any, ...]) -> Optional[Tuple[Any, ...]]:
    """Make the first input (B, T, C) of a checkpointed layer require a gradient.

    If no input requires one, as with frozen embeddings, fairseq's checkpointing trains nothing.
    """
    x, *others = inputs
    if x.requires_grad or not torch.is_grad_enabled():
        return None
    trains = any(parameter.requires_grad for parameter in layer.parameters())
    return (x.detach().requires_grad_(), *others) if trains else None


def finish_layer(layer: Layer, cfg: Options) -> None:
    """Apply ``--feed-forward``, ``--norm`` and ``--no-bias`` to a fairseq layer, in place."""
    form = FEED_FORWARDS.find(cfg.feed_forward).thing
    layer.activation_fn = form.activation or layer.activation_fn
    form.extend(layer, cfg)
    apply_norms_and_biases(cast(nn.Module, layer), cfg)


def self_attention(
    embed_dim: int, encoding: PositionEncoding, cfg: Options, **kwargs: bool
) -> AttentionKernel:
    """The self-attention that *cfg* selects, for a layer of *embed_dim* channels C."""
    kernel: Any = kernel_of(cfg)
    noise = cfg.quant_noise
    return kernel(
        embed_dim,
        encoding.stack.num_heads,
        encoding,
        dropout=cfg.attention_dropout,
        q_noise=noise.pq,
        qn_block_size=noise.pq_block_size,
        **kwargs,
    )


def attention_to_source(embed_dim: int, cfg: Options) -> CrossAttention:
    """The attention of a decoder layer of *embed_dim* channels to the encoder's output."""
    heads = cfg.decoder.attention_heads
    return CrossAttention(
        embed_dim,
        heads,
        kv_heads_of(cfg, "decoder", heads),
        kdim=cfg.encoder.embed_dim,
        vdim=cfg.encoder.embed_dim,
        dropout=cfg.attention_dropout,
        q_noise=cfg.quant_noise.pq,
        qn_block_size=cfg.quant_noise.pq_block_size,
    )


def feed_forward(layer: Layer, x: Tensor, *unused: object, **prepared: Prepared) -> Tensor:
    """fc2(f(fc1(x)) ⊙ fc_gate(x)), or fc2(f(fc1(x))) without a gate, (B, T, C), for x (B, T, C).

    Vaswani et al. 2017, Eq. 2; with the gate Shazeer 2020, arXiv 2002.05202, Eq. 6.
    """
    hidden = layer.activation_fn(layer.fc1(x))
    x = hidden if getattr(layer, "fc_gate", None) is None else hidden * layer.fc_gate(x)
    if layer.activation_dropout_module.p:
        x = drop(x, layer.activation_dropout_module)
    if getattr(layer, "ffn_layernorm", None) is not None:  # --scale-fc, decoders only
        x = layer.ffn_layernorm(x)
    return layer.fc2(x)


class TransformerEncoderLayer(stock.TransformerEncoderLayerBase):
    """Self-attention and feed-forward, each with a residual connection and a norm."""

    def __init__(self, cfg: Options, encoding: PositionEncoding) -> None:
        self.encoding = encoding  # read by build_self_attention, which the base class calls
        super().__init__(cfg)
        no_fast_path(self)
        finish_layer(self, cfg)

    def build_self_attention(self, embed_dim: int, cfg: Options) -> AttentionKernel:
        """The attention layer, with the stack's position encoding."""
        return self_attention(embed_dim, self.encoding, cfg)

    def forward(self, x: Tensor, keys: Optional[Tensor] = None, **prepared: Prepared) -> Tensor:
        """The output for *x* (B, T, C); keys and values are from *keys* (B, S, C), if passed."""
        pre_norm, norm = self.normalize_before, self.self_attn_layer_norm
        if keys is not None:
            prepared["keys"] = norm(keys) if pre_norm else keys
        rate = dropout_rate(self.dropout_module)
        out = self.self_attn(norm(x) if pre_norm else x, **prepared)
        x = x + (F.dropout(out, rate) if rate else out)
        x = x if pre_norm else norm(x)
        norm = self.final_layer_norm
        out = feed_forward(self, norm(x) if pre_norm else x)
        x = x + (F.dropout(out, rate) if rate else out)
        return x if pre_norm else norm(x)


class DecoderForward:
    """Forward pass of decoder layers: self-attention, attention to the source, a last sub-layer."""

    self_attn: nn.Module
    self_attn_layer_norm: nn.Module
    final_layer_norm: nn.Module
    encoder_attn_layer_norm: nn.Module
    encoder_attn: Optional[nn.Module]
    c_attn: Optional[Tensor]  # --scale-heads: a factor for each head of the self-attention
    attn_ln: Optional[nn.Module]  # --scale-attn: a norm of the output of the self-attention
    w_resid: Optional[Tensor]  # --scale-resids: a factor on the input of the last sub-layer
    normalize_before: bool
    dropout_module: FairseqDropout
    head_dim: int
    #: the last sub-layer: a function of its input (B, T, C), the cache and the prepared arguments
    _last: Callable[..., Tensor]

    def forward(
        self,
        x: Tensor,
        encoder_out: Optional[Tensor] = None,
        encoder_bias: Optional[Tensor] = None,
        incremental_state: IncrementalState = None,
        need_weights: bool = False,
        earlier: Optional[Tensor] = None,
        **prepared: Prepared,
    ) -> Tuple[Tensor, Optional[Tensor], None]:
        """Apply the layer.

        Args:
            x: states of the new tokens, (B, T, C).
            encoder_out: source states (B, S', C of the encoder), or None.
            encoder_bias: padding mask of the source, (B, 1, 1, S'), or None.
            incremental_state: fairseq's cache.
            need_weights: also return the attention weights over the source.
            earlier: the layer's input for earlier tokens, (B, M, C), or None.
            prepared: keyword arguments that ``prepare`` of the self-attention returned.

        Returns:
            states (B, T, C), weights (B, H, T, S') or None, and None (fairseq expects three).
        """
        pre_norm, norm = self.normalize_before, self.self_attn_layer_norm
        if earlier is not None:
            keys = torch.cat((earlier, x), dim=1)
            prepared["keys"] = norm(keys) if pre_norm else keys
        rate = dropout_rate(self.dropout_module)
        inputs = norm(x) if pre_norm else x
        out = self.self_attn(inputs, incremental_state=incremental_state, **prepared)
        if self.c_attn is not None:
            out = out * self.c_attn.repeat_interleave(self.head_dim)
        out = out if self.attn_ln is None else self.attn_ln(out)
        x = x + (F.dropout(out, rate) if rate else out)
        x = x if pre_norm else norm(x)
        weights: Optional[Tensor] = None
        if self.encoder_attn is not None and encoder_out is not None:
            norm = self.encoder_attn_layer_norm
            out, weights = self.encoder_attn(
                norm(x) if pre_norm else x,
                encoder_out,
                encoder_bias,
                incremental_state,
                need_weights,
            )
            x = x + (F.dropout(out, rate) if rate else out)
            x = x if pre_norm else norm(x)
        norm = self.final_layer_norm
        out = self._last(norm(x) if pre_norm else x, incremental_state, **prepared)
        x = x if self.w_resid is None else x * self.w_resid
        x = x + (F.dropout(out, rate) if rate else out)
        return x if pre_norm else norm(x), weights, None


class TransformerDecoderLayer(DecoderForward, stock.TransformerDecoderLayerBase):
    """Causal self-attention, attention to the source, feed-forward."""

    _last = feed_forward

    def __init__(
        self, cfg: Options, encoding: PositionEncoding, no_encoder_attn: bool = False
    ) -> None:
        self.encoding = encoding
        super().__init__(cfg, no_encoder_attn)
        finish_layer(self, cfg)

    def build_self_attention(
        self, embed_dim: int, cfg: Options, add_bias_kv: bool = False, add_zero_attn: bool = False
    ) -> AttentionKernel:
        """The causal attention layer, with the stack's position encoding."""
        extra = {"add_bias_kv": add_bias_kv, "add_zero_attn": add_zero_attn}
        return self_attention(embed_dim, self.encoding, cfg, **extra)

    def build_encoder_attention(self, embed_dim: int, cfg: Options) -> CrossAttention:
        """The attention to the source, without positions."""
        return attention_to_source(embed_dim, cfg)
