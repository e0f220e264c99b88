"""Attention from the decoder to the encoder's output; position encodings have no part in it."""

from typing import Any, Optional, Tuple

from fairseq.modules import MultiheadAttention as StockMultiheadAttention
from torch import Tensor

from fairseq_posenc.attention.functional import attend, attend_with_weights
from fairseq_posenc.attention.multihead import (
    IncrementalState,
    attention_dropout,
    join_heads,
    split_heads,
)


class CrossAttention(StockMultiheadAttention):
    """Encoder-decoder attention (Vaswani et al. 2017, section 3.2.3) through the fused kernel.

    Source and target positions are not commensurable, so nothing is rotated or biased here.

    Args:
        embed_dim: C of the decoder.
        num_heads: H.
        kwargs: passed to fairseq's attention (kdim, vdim, dropout, quantisation noise).
    """

    def __init__(self, embed_dim: int, num_heads: int, **kwargs: Any) -> None:
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
            x: decoder states, (T, B, C).
            encoder_out: encoder output, (S, B, C of the encoder).
            bias: padding mask of the source, (B, 1, 1, S), or None.
            incremental_state: fairseq's cache; source keys and values are projected once.
            need_weights: also return the attention weights.

        Returns:
            output (T, B, C) and weights (B, H, T, S) or None.
        """
        q = split_heads(self.q_proj(x), self.head_dim).permute(1, 2, 0, 3)  # (B, H, T, D)
        k, v = self._source(encoder_out, incremental_state)
        beam = q.size(0) // k.size(0)
        if beam > 1:  # all hypotheses of a sentence share its keys: fold them into one long query
            q = _fold(q, beam)
            bias = bias[::beam] if bias is not None else None
        arguments = (q, k, v, self.scaling, bias, False, attention_dropout(self))
        out, weights = (
            attend_with_weights(*arguments) if need_weights else (attend(*arguments), None)
        )
        if beam > 1:
            out = _unfold(out, beam)
            weights = _unfold(weights, beam) if weights is not None else None
        return self.out_proj(join_heads(out)), weights

    def _source(
        self, encoder_out: Tensor, incremental_state: IncrementalState
    ) -> Tuple[Tensor, Tensor]:
        """Keys and values of the source, (B or B/beam, H, S, D), cached if there is a cache."""
        if incremental_state is not None:
            saved = self._get_input_buffer(incremental_state)
            if saved.get("prev_key") is not None:
                return saved["prev_key"], saved["prev_value"]
            # equal rows for the hypotheses of one sentence: project and keep only one of them
            encoder_out = encoder_out[:, :: getattr(self, "beam_size", 1)]
        k, v = (
            split_heads(proj(encoder_out), self.head_dim).permute(1, 2, 0, 3)
            for proj in (self.k_proj, self.v_proj)
        )
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
