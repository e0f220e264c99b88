"""Multi-head softmax attention: self-attention and attention to the source.

Parameter names are fairseq's (q_proj, k_proj, v_proj, out_proj), so checkpoints and the flags that
rely on them (quantisation noise, pruning, initialisation) keep working.
"""

import math
from dataclasses import replace
from functools import partial
from typing import Any, Optional, Sequence, Tuple

from fairseq.modules import MultiheadAttention as StockMultiheadAttention
from torch import Tensor, nn

from fairseq_posenc.attention.base import Abilities, AttentionKernel
from fairseq_posenc.attention.cache import IncrementalState, append_to_cache, reorder_cache
from fairseq_posenc.attention.content import content_logits
from fairseq_posenc.attention.functional import (
    aligned,
    attend,
    attend_with_weights,
    dropout_rate,
)
from fairseq_posenc.attention.joint import JointProjection, can_join
from fairseq_posenc.attention.registry import register_attention
from fairseq_posenc.attention.softmax_flags import SoftmaxFlags
from fairseq_posenc.encodings import PositionEncoding
from fairseq_posenc.encodings.base import Content
from fairseq_posenc.flags.options import Options, option


@register_attention(
    "softmax",
    paper="Vaswani et al. 2017, arXiv 1706.03762",
    summary="scaled dot-product attention, fused where PyTorch supports it",
    flags=SoftmaxFlags,
)
class MultiheadAttention(AttentionKernel, StockMultiheadAttention):
    """Self-attention with position-dependent queries and keys (RoFormer Eq. 1 and 2).

    Args:
        embed_dim: C.
        num_heads: H.
        encoding: the position encoding of this layer.
        kwargs: passed to fairseq's attention (dropout, quantisation noise).
    """

    abilities = Abilities(takes_keys=True, content=True)

    def __init__(
        self, embed_dim: int, num_heads: int, encoding: PositionEncoding, **kwargs: object
    ) -> None:
        super().__init__(embed_dim, num_heads, self_attention=True, **kwargs)
        self.encoding = encoding
        self.joint: Optional[JointProjection] = None
        self.position_terms = encoding.build_content_bias()
        normed = bool(option(encoding.options, "qk_norm"))
        # Dehghani et al. 2023, arXiv 2302.05442, section 2; replaced like all layer norms
        self.q_norm = nn.LayerNorm(self.head_dim) if normed else None
        self.k_norm = nn.LayerNorm(self.head_dim) if normed else None

    @classmethod
    def abilities_for(cls, options: Options) -> Abilities:
        """With ``--log-length-scale``, the factor log n / log N (GAU Eq. 8)."""
        scale = option(options, "log_length_scale")
        if scale is None:
            return cls.abilities
        return replace(cls.abilities, length_factor=partial(_log_ratio, scale))

    def forward(
        self,
        x: Tensor,
        bias: Optional[Tensor] = None,
        causal: bool = False,
        table: Optional[Tensor] = None,
        query_positions: Optional[Tensor] = None,
        key_positions: Optional[Tensor] = None,
        padding_mask: Optional[Tensor] = None,
        distance_vectors: Optional[Tensor] = None,
        empty_rows: bool = True,
        length_factor: Optional[Tensor] = None,
        key_table: Optional[Tensor] = None,
        keys: Optional[Tensor] = None,
        step: int = 1,
        incremental_state: IncrementalState = None,
        need_weights: bool = False,
    ) -> Tuple[Tensor, Optional[Tensor]]:
        """Attend from the new tokens to all tokens so far.

        Args:
            x: layer input for the new tokens, (B, T, C).
            incremental_state: fairseq's cache; keys are cached after the position transform.
            need_weights: also return the attention weights.

        The others are the entries of :class:`~fairseq_posenc.attention.base.Positions`.

        Returns:
            output (B, T, C) and weights (B, H, T, S) or None.
        """
        q, k, v, content_q, content_k = self.project(x, table, keys=keys, key_table=key_table)
        if incremental_state is not None:
            k, v, content_k = append_to_cache(self, k, v, content_k, incremental_state)
        if length_factor is not None:
            q = (q * length_factor).type_as(q)
        relative_values = None
        if self.position_terms is not None:
            positions = (query_positions, key_positions)
            scale = self.encoding.scale
            content = Content(x, content_q, content_k, scale, *positions, padding_mask, step)
            logits = content_logits(self, content, distance_vectors, incremental_state)
            if length_factor is not None:  # products with q, scaled like those with the keys
                logits = (logits * length_factor).type_as(logits)
            bias = aligned(logits if bias is None else bias + logits)
            if self.position_terms.needs_weights:
                relative_values = partial(self.position_terms.relative_values, content)
        rate, weights = dropout_rate(self.dropout_module), None
        if need_weights or relative_values is not None:
            out, weights = attend_with_weights(
                q, k, v, self.encoding.scale, bias, causal, rate, empty_rows, relative_values
            )
        else:
            out = attend(q, k, v, self.encoding.scale, bias, causal, rate, empty_rows)
        out = out.transpose(1, 2).flatten(2)  # (B, H, T, D) -> (B, T, C)
        return self.out_proj(out), weights if need_weights else None

    def project(
        self,
        x: Tensor,
        table: Optional[Tensor],
        projections: Optional[Sequence[nn.Module]] = None,
        keys: Optional[Tensor] = None,
        key_table: Optional[Tensor] = None,
    ) -> Tuple[Tensor, ...]:
        """Queries, keys and values of the new tokens, with positions applied.

        Args:
            x: layer input for the new tokens, (B, T, C).
            table: table of the position transform, or None.
            projections: used instead of those of all queries, keys and values.
            keys: layer input for keys and values, (B, S, C), by default *x*.
            key_table: its table of the position transform.

        Returns:
            q (B, H, T, D), k and v (B, H, S, D), then q and k before they are transformed.
        """
        if projections is not None:
            q, k, v = (projection(x) for projection in projections)
        elif keys is not None:
            q, k, v = self.q_proj(x), self.k_proj(keys), self.v_proj(keys)
        elif self.joint is not None and self.joint.serves(x):
            q, k, v = self.joint(x)
        else:
            q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        by_head = (x.size(0), -1, self.num_heads, self.head_dim)
        # (B, T, C) -> (B, T, H, D)
        q, k, v = q.view(by_head), k.view(by_head), v.view(by_head)
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        before = (q.transpose(1, 2), k.transpose(1, 2))
        if table is not None and self.encoding.transform is not None:
            if key_table is None:
                q, k, v = self.encoding.transform(q, k, v, table)
            else:
                q = self.encoding.transform(q, q, q, table)[0]
                _, k, v = self.encoding.transform(k, k, v, key_table)
        # (B, T, H, D) -> (B, H, T, D)
        return (q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), *before)

    def make_generation_fast_(self, **kwargs: Any) -> None:
        """Join the projections; fairseq calls this once for a model that will not be trained."""
        projections = (self.q_proj, self.k_proj, self.v_proj)
        self.joint = JointProjection(projections) if can_join(projections) else None

    def _apply(self, *args: Any, **kwargs: Any) -> "MultiheadAttention":
        """Join them again after ``.half()`` and the like, which take new memory."""
        super()._apply(*args, **kwargs)
        if self.joint is not None:
            self.make_generation_fast_()
        return self

    def extra_repr(self) -> str:
        """The settings shown by ``print(model)``."""
        return f"encoding={self.encoding.name}, heads={self.num_heads}, head_dim={self.head_dim}"

    def cached_length(self, incremental_state: IncrementalState) -> int:
        """Number of tokens in this layer's cache."""
        key = self._get_input_buffer(incremental_state).get("prev_key")
        return 0 if key is None else key.size(2)

    def reorder_incremental_state(
        self, incremental_state: IncrementalState, new_order: Tensor
    ) -> IncrementalState:
        """Reorder the cache along with the hypotheses of a beam search."""
        reorder_cache(self, incremental_state, new_order)
        return incremental_state


def _log_ratio(reference: float, counts: Tensor) -> Tensor:
    return counts.log() / math.log(reference)


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
