"""Encoder and decoder layers: fairseq's, with masks and positions as explicit arguments.

The sub-layers, their order, their parameter names and their flags are fairseq's (dropout, pre- and
post-norm, quantisation noise, learned scales).  What differs is the attention they call.
"""

from functools import partial
from typing import Any, Callable, Optional, Tuple

from fairseq.distributed import fsdp_wrap
from fairseq.modules import transformer_layer as stock
from fairseq.modules.checkpoint_activations import checkpoint_wrapper
from torch import Tensor, nn

from fairseq_posenc import compat
from fairseq_posenc.attention.choice import ATTENTIONS
from fairseq_posenc.attention.cross import CrossAttention
from fairseq_posenc.attention.multihead import IncrementalState
from fairseq_posenc.encodings import PositionEncoding
from fairseq_posenc.modules.simple import simplify


def wrap_layer(layer: nn.Module, cfg: Any) -> nn.Module:
    """Apply --checkpoint-activations and FSDP to a layer, as fairseq's stacks do to theirs.

    A checkpointed layer is always its own FSDP unit, whatever its size.
    """
    if not cfg.checkpoint_activations:
        return fsdp_wrap(layer, min_num_params=cfg.min_params_to_wrap)
    layer = checkpoint_wrapper(layer, offload_to_cpu=cfg.offload_activations)
    return fsdp_wrap(layer, min_num_params=0)


def add_and_norm(
    layer: Any,
    norm: nn.Module,
    x: Tensor,
    function: Callable[[Tensor], Tuple[Tensor, Optional[Tensor]]],
    residual_scale: Optional[Tensor] = None,
) -> Tuple[Tensor, Optional[Tensor]]:
    """x + dropout(function(x)), with the norm before *function* or after the sum.

    Args:
        layer: whose dropout, residual connection and choice of norm place count.
        norm: the sub-layer's norm.
        x: (T, B, C).
        function: the sub-layer; returns its output (T, B, C) and whatever else it has to say.
        residual_scale: factor on *x* in the sum, per channel.

    Returns:
        (T, B, C), and what *function* said.
    """
    out, extra = function(norm(x) if layer.normalize_before else x)
    residual = x if residual_scale is None else x * residual_scale
    x = layer.residual_connection(layer.dropout_module(out), residual)
    return (x if layer.normalize_before else norm(x)), extra


def feed_forward(layer: Any, x: Tensor) -> Tuple[Tensor, Tensor]:
    """Position-wise feed-forward (Vaswani et al. 2017, Eq. 2), (T, B, C); returned twice."""
    x = layer.activation_dropout_module(layer.activation_fn(layer.fc1(x)))
    if getattr(layer, "ffn_layernorm", None) is not None:  # --scale-fc, decoders only
        x = layer.ffn_layernorm(x)
    x = layer.fc2(x)
    return x, x


class TransformerEncoderLayer(stock.TransformerEncoderLayerBase):
    """Self-attention and feed-forward, each with a residual connection and a norm.

    Args:
        cfg: fairseq's nested Transformer configuration.
        encoding: position encoding of the stack.
        return_fc: also return the feed-forward output before its residual connection.
    """

    def __init__(self, cfg: Any, encoding: PositionEncoding, return_fc: bool = False) -> None:
        self.encoding = encoding  # read by build_self_attention, which the base class calls
        super().__init__(cfg, return_fc)
        compat.no_fast_path(self)
        simplify(self, cfg)

    def build_self_attention(self, embed_dim: int, cfg: Any) -> nn.Module:
        """The attention layer, with the stack's position encoding."""
        return ATTENTIONS[cfg.attention](
            embed_dim,
            cfg.encoder.attention_heads,
            self.encoding,
            dropout=cfg.attention_dropout,
            q_noise=self.quant_noise,
            qn_block_size=self.quant_noise_block_size,
        )

    def forward(
        self,
        x: Tensor,
        bias: Optional[Tensor] = None,
        causal: bool = False,
        table: Optional[Tensor] = None,
        query_positions: Optional[Tensor] = None,
        key_positions: Optional[Tensor] = None,
        distance_vectors: Optional[Tensor] = None,
    ) -> Any:
        """Encode one layer further.

        Args:
            x: (T, B, C).
            bias: masks and content-free logits, (1|B, 1|H, 1|T, T), or None.
            causal: hide later keys where no *bias* does.
            table: what changes q and k, such as a rotation, or None.
            query_positions: (1|B, T), for content-dependent terms; else None.
            key_positions: (1|B, T), likewise.
            distance_vectors: (N, L, C) of L distances, for those of N terms; else None.

        Returns:
            (T, B, C), with the feed-forward output beside it under *return_fc*.
        """
        attention = partial(
            self.self_attn,
            bias=bias,
            causal=causal,
            table=table,
            query_positions=query_positions,
            key_positions=key_positions,
            distance_vectors=distance_vectors,
        )
        x, _ = add_and_norm(self, self.self_attn_layer_norm, x, attention)
        x, fc_out = add_and_norm(self, self.final_layer_norm, x, partial(feed_forward, self))
        return (x, fc_out) if self.return_fc else x


class DecoderForward:
    """How every decoder layer computes: its own tokens, the source, one more sub-layer.

    The layer has the sub-layers ``_self_attention`` and ``_last``, and maybe ``encoder_attn``.
    """

    self_attn_layer_norm: nn.Module
    final_layer_norm: nn.Module
    encoder_attn_layer_norm: nn.Module
    encoder_attn: Optional[nn.Module]
    w_resid: Optional[Tensor]  # --scale-resids: a factor on the input of the last sub-layer
    _self_attention: Callable[..., Any]
    _last: Callable[..., Any]

    def forward(
        self,
        x: Tensor,
        encoder_out: Optional[Tensor] = None,
        encoder_bias: Optional[Tensor] = None,
        incremental_state: IncrementalState = None,
        bias: Optional[Tensor] = None,
        causal: bool = False,
        table: Optional[Tensor] = None,
        query_positions: Optional[Tensor] = None,
        key_positions: Optional[Tensor] = None,
        distance_vectors: Optional[Tensor] = None,
        need_weights: bool = False,
    ) -> Tuple[Tensor, Optional[Tensor], None]:
        """Decode one layer further.

        Args:
            x: states of the new tokens, (T, B, C).
            encoder_out: source states (S', B, C of the encoder), or None.
            encoder_bias: padding mask of the source, (B, 1, 1, S'), or None.
            incremental_state: fairseq's cache.
            bias: masks and content-free logits, (1|B, 1|H, 1|T, S), or None.
            causal: hide later keys where no *bias* does.
            table: what changes q and k at the new positions, such as a rotation, or None.
            query_positions: (1|B, T), for content-dependent terms; else None.
            key_positions: (1|B, S), likewise.
            distance_vectors: (N, L, C) of L distances, for those of N terms; else None.
            need_weights: also return the attention weights over the source.

        Returns:
            states (T, B, C), weights (B, H, T, S') or None, and None (fairseq expects three).
        """
        own = {
            "bias": bias,
            "causal": causal,
            "table": table,
            "query_positions": query_positions,
            "key_positions": key_positions,
            "distance_vectors": distance_vectors,
            "incremental_state": incremental_state,
        }
        attention = partial(self._self_attention, **own)
        x, _ = add_and_norm(self, self.self_attn_layer_norm, x, attention)
        weights: Optional[Tensor] = None
        if self.encoder_attn is not None and encoder_out is not None:
            attention = partial(
                self.encoder_attn,
                encoder_out=encoder_out,
                bias=encoder_bias,
                incremental_state=incremental_state,
                need_weights=need_weights,
            )
            x, weights = add_and_norm(self, self.encoder_attn_layer_norm, x, attention)
        last = partial(self._last, **own)
        x, _ = add_and_norm(self, self.final_layer_norm, x, last, self.w_resid)
        return x, weights, None


class TransformerDecoderLayer(DecoderForward, stock.TransformerDecoderLayerBase):
    """Causal self-attention, attention to the source, feed-forward.

    Args:
        cfg: fairseq's nested Transformer configuration.
        encoding: position encoding of the stack.
        no_encoder_attn: leave out the attention to the source.
    """

    def __init__(self, cfg: Any, encoding: PositionEncoding, no_encoder_attn: bool = False) -> None:
        self.encoding = encoding
        super().__init__(cfg, no_encoder_attn)
        simplify(self, cfg)

    def build_self_attention(
        self, embed_dim: int, cfg: Any, add_bias_kv: bool = False, add_zero_attn: bool = False
    ) -> nn.Module:
        """The causal attention layer, with the stack's position encoding."""
        return ATTENTIONS[cfg.attention](
            embed_dim,
            cfg.decoder.attention_heads,
            self.encoding,
            dropout=cfg.attention_dropout,
            add_bias_kv=add_bias_kv,
            add_zero_attn=add_zero_attn,
            q_noise=self.quant_noise,
            qn_block_size=self.quant_noise_block_size,
        )

    def build_encoder_attention(self, embed_dim: int, cfg: Any) -> CrossAttention:
        """The attention to the source, without positions."""
        return CrossAttention(
            embed_dim,
            cfg.decoder.attention_heads,
            kdim=cfg.encoder.embed_dim,
            vdim=cfg.encoder.embed_dim,
            dropout=cfg.attention_dropout,
            q_noise=self.quant_noise,
            qn_block_size=self.quant_noise_block_size,
        )

    def _self_attention(self, x: Tensor, **arguments: Any) -> Tuple[Tensor, Optional[Tensor]]:
        """Self-attention with fairseq's learned scales of its output, where flags ask for them."""
        x, weights = self.self_attn(x, **arguments)
        if self.c_attn is not None:  # --scale-heads: one factor per head
            x = x * self.c_attn.repeat_interleave(self.head_dim)
        if self.attn_ln is not None:  # --scale-attn
            x = self.attn_ln(x)
        return x, weights

    def _last(self, x: Tensor, **unused: Any) -> Tuple[Tensor, Tensor]:
        return feed_forward(self, x)
