"""Attention of a decoder to the source, without positions.

Parameter names are fairseq's, as those of the self-attention.
"""

from typing import Optional, Tuple

from fairseq.modules import MultiheadAttention as StockMultiheadAttention
from torch import Tensor

from fairseq_posenc.attention.cache import IncrementalState
from fairseq_posenc.attention.functional import attend, attend_with_weights, dropout_rate


class CrossAttention(StockMultiheadAttention):
    """Encoder-decoder attention (Vaswani et al. 2017, section 3.2.3) through the fused kernel.

    Source and target positions are not comparable, so no position encoding is applied.

    Args:
        embed_dim: C of the decoder.
        num_heads: H.
        kwargs: passed to fairseq's attention (kdim, vdim, dropout, quantisation noise).
    """

    def __init__(self, embed_dim: int, num_heads: int, **kwargs: object) -> None:
        super().__init__(embed_dim, num_heads, encoder_decoder_attention=True, **kwargs)

    def forward(
        self,
        x: Tensor,
        encoder_out: Tensor,
        bias: Optional[Tensor] = None,
        incremental_state: IncrementalState = None,
        need_weights: bool = False,
    ) -> Tuple[Tensor, Optional[Tensor]]:
        """Attend from the new target tokens to the source.

        Args:
            x: decoder states, (B, T, C).
            encoder_out: encoder output, (B, S, C of the encoder).
            bias: padding mask of the source, (B, 1, 1, S), or None.
            incremental_state: fairseq's cache; source keys and values are projected once.
            need_weights: also return the attention weights.

        Returns:
            output (B, T, C) and weights (B, H, T, S) or None.
        """
        q = self.q_proj(x).view(x.size(0), x.size(1), self.num_heads, self.head_dim)
        q = q.transpose(1, 2)  # (B, T, H, D) -> (B, H, T, D)
        k, v = self._source(encoder_out, incremental_state)
        beam = q.size(0) // k.size(0)
        if beam > 1:  # all hypotheses of a sentence share its keys: fold them into one long query
            q = _fold(q, beam)
            bias = bias[::beam] if bias is not None else None
        rate, weights = dropout_rate(self.dropout_module), None
        if need_weights:
            out, weights = attend_with_weights(q, k, v, self.scaling, bias, dropout=rate)
        else:
            out = attend(q, k, v, self.scaling, bias, dropout=rate)
        if beam > 1:
            out = _unfold(out, beam)
            weights = _unfold(weights, beam) if weights is not None else None
        out = out.transpose(1, 2).flatten(2)  # (B, H, T, D) -> (B, T, C)
        return self.out_proj(out), weights

    def _source(
        self, encoder_out: Tensor, incremental_state: IncrementalState
    ) -> Tuple[Tensor, Tensor]:
        """Keys and values of the source, (B or B/beam, H, S, D), cached if there is a cache."""
        if incremental_state is not None:
            saved = self._get_input_buffer(incremental_state)
            if saved.get("prev_key") is not None:
                return saved["prev_key"], saved["prev_value"]
            # equal rows for the hypotheses of one sentence: project and keep only one of them
            encoder_out = encoder_out[:: getattr(self, "beam_size", 1)]
        by_head = (*encoder_out.shape[:2], self.num_heads, self.head_dim)
        # (B, S, C) -> (B, S, H, D) -> (B, H, S, D)
        k = self.k_proj(encoder_out).view(by_head).transpose(1, 2)
        v = self.v_proj(encoder_out).view(by_head).transpose(1, 2)
        if incremental_state is not None:
            k, v = k.contiguous(), v.contiguous()  # read at every step
            self._set_input_buffer(incremental_state, {"prev_key": k, "prev_value": v})
        return k, v


def _fold(x: Tensor, beam: int) -> Tensor:
    """(B·beam, H, T, D) -> (B, H, beam·T, D)."""
    return x.reshape(-1, beam, *x.shape[1:]).transpose(1, 2).flatten(2, 3)


def _unfold(x: Tensor, beam: int) -> Tensor:
    """(B, H, beam·T, D) -> (B·beam, H, T, D)."""
    return x.reshape(*x.shape[:2], beam, -1, x.size(-1)).transpose(1, 2).flatten(0, 1)
