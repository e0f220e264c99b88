"""Multi-head softmax attention: self-attention and attention to the source."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Optional, Sequence, Tuple

import torch
from fairseq.modules import MultiheadAttention as StockMultiheadAttention
from torch import Tensor, nn

from fairseq_posenc.attention.base import (
    Abilities,
    HeadSizes,
    MultiheadKernel,
    register_attention,
)
from fairseq_posenc.attention.cache import (
    BEAM,
    IncrementalState,
    append_to_cache,
    content_logits,
)
from fairseq_posenc.attention.functional import (
    attend,
    attend_with_weights,
    dropout_rate,
    with_terms,
)
from fairseq_posenc.attention.grouped import (
    KVHeadsFlags,
    check_groups,
    keep_heads,
    kv_heads_of,
    repeat_heads,
)
from fairseq_posenc.attention.normalisers import Counts, log_ratio
from fairseq_posenc.encodings import PositionEncoding
from fairseq_posenc.encodings.base import Content
from fairseq_posenc.flags.options import Options, option
from fairseq_posenc.flags.settings import setting


@dataclass
class HeadFlags(KVHeadsFlags):
    """Flags of the heads of softmax attention, over all keys or some of them."""

    qk_norm: Optional[bool] = setting(
        False,
        "normalise the queries and the keys of each head, before positions, with the norm of "
        "--norm",
        role="model",
    )


@dataclass
class SoftmaxFlags(HeadFlags):
    """Flags of softmax attention."""

    log_length_scale: Optional[int] = setting(
        None,
        "multiply the products of queries and keys by log(n) / log(N), where n is the number of "
        "keys that a query sees and N is this length, usually that of training, in tokens "
        "(softmax_plus of gated units)",
        role="model",
        at_least=2,
        at_most=2**31 - 1,
    )
    attention_backend: Optional[str] = setting(
        "fused",
        "what computes softmax attention: {choices}; flex is PyTorch's FlexAttention, which reads "
        "logits by distance (T5, ALiBi, KERPLE, Sandwich) in its kernel, without a bias of all "
        "pairs; on a GPU, with PyTorch 2.6; gradients of learned logits are not deterministic",
        role="free",
        choices=("fused", "flex"),
        needs={"attention": ("softmax",), "layer": ("transformer",)},
    )


@register_attention(
    "softmax",
    paper="Vaswani et al. 2017, arXiv 1706.03762",
    summary="scaled dot-product attention, fused where PyTorch supports it",
    flags=SoftmaxFlags,
)
class MultiheadAttention(MultiheadKernel):
    """Self-attention with position-dependent queries and keys (RoFormer Eq. 1 and 2).

    Arguments are those of :class:`MultiheadKernel`.
    """

    abilities = Abilities(
        hooks=("transform", "shared", "content"),
        changes_values=True,
        takes_keys=True,
        takes_positions=True,
        traceable=True,
        static_cache="keys",
    )

    def __init__(
        self, embed_dim: int, num_heads: int, encoding: PositionEncoding, **kwargs: object
    ) -> None:
        super().__init__(embed_dim, num_heads, encoding, **kwargs)
        #: G, the number of heads of keys and values
        self.kv_heads = kv_heads_of(encoding.options, encoding.stack.side, num_heads)
        if self.kv_heads < num_heads:
            check_groups(encoding, self.kv_heads)
            keep_heads(self.k_proj, self.kv_heads * self.head_dim)
            keep_heads(self.v_proj, self.kv_heads * self.head_dim)
        self.position_terms = encoding.build_content_bias()
        #: the cache has keys before and after the transform
        self.keeps_both = self.position_terms is not None and encoding.transform is not None
        normed = bool(option(encoding.options, "qk_norm"))
        # Dehghani et al. 2023, arXiv 2302.05442, section 2; replaced like all layer norms
        self.q_norm = nn.LayerNorm(self.head_dim) if normed else None
        self.k_norm = nn.LayerNorm(self.head_dim) if normed else None

    @classmethod
    def head_sizes(cls, options: Options, side: str) -> HeadSizes:
        """The heads of queries; refuses a number of key heads that does not divide them."""
        sizes = super().head_sizes(options, side)
        kv_heads_of(options, side, sizes.number)
        return sizes

    @classmethod
    def abilities_for(cls, options: Options) -> Abilities:
        """The abilities with ``--log-length-scale``: a factor log n / log N (GAU section 3.3)."""
        scale = option(options, "log_length_scale")
        if scale is None:
            return cls.abilities
        return replace(cls.abilities, length_factor=partial(log_ratio, reference=scale))

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
        length_factor: Optional[Counts] = None,
        key_table: Optional[Tensor] = None,
        keys: Optional[Tensor] = None,
        step: int = 1,
        uneven: bool = False,
        incremental_state: IncrementalState = None,
    ) -> Tensor:
        """Attend from the new tokens to all so far; see :class:`.AttentionKernel`."""
        q, k, v, content_q, content_k = self.project(x, table, keys=keys, key_table=key_table)
        of_keys = None
        if self.position_terms is not None:
            of_keys = self.position_terms.of_keys(x if keys is None else keys)
        if incremental_state is not None:
            kept = content_k if self.keeps_both else None
            k, v, content_k = append_to_cache(
                self, k, v, incremental_state, content_k=kept, of_keys=of_keys
            )
        terms, relative_values = None, None
        if self.position_terms is not None:
            positions = (query_positions, key_positions, padding_mask)
            content_k = repeat_heads(content_k, self.num_heads)
            scale = self.encoding.scale
            content = Content(x, content_q, content_k, scale, *positions, step, of_keys, uneven)
            terms = content_logits(
                self, content, distance_vectors, incremental_state, length_factor
            )
            if self.position_terms.needs_weights:
                # one kernel fewer to start, which is what a GPU waits for; a CPU waits for memory
                added = self.position_terms.added_values(content) if x.is_cuda else None
                if added is None:
                    relative_values = partial(self.position_terms.relative_values, content)
                else:
                    if added.size(1) > 1:  # keys and values are of the same heads
                        k, v = repeat_heads(k, self.num_heads), repeat_heads(v, self.num_heads)
                    v = v + added.type_as(v)
        scale = self.encoding.scale
        if terms is not None or length_factor is not None:
            q, scale, bias = with_terms(q, scale, bias, terms, length_factor)
        rate = dropout_rate(self.dropout_module)
        inputs = (q, k, v, scale, bias, causal, rate, empty_rows)
        if relative_values is None:
            out = attend(*inputs)
        else:
            out, _ = attend_with_weights(*inputs, relative_values)
        return self.out_proj(out.transpose(1, 2).flatten(2))  # (B, H, T, D) -> (B, T, C)

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
            projections: modules to use in place of q_proj, k_proj and v_proj.
            keys: layer input for keys and values, (B, S, C), by default *x*.
            key_table: table of the position transform for *keys*.

        Returns:
            q (B, H, T, D), k and v (B, G, S, D), then q and k before they are transformed.
        """
        if projections is not None:
            q, k, v = (projection(x) for projection in projections)
        elif keys is not None:
            q, k, v = self.q_proj(x), self.k_proj(keys), self.v_proj(keys)
        elif self.joint is not None and self.joint.serves(x):
            q, k, v = self.joint(x)
        else:
            q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        # (B, T, H·D) -> (B, T, H, D), and (B, S, G·D) -> (B, S, G, D)
        by_head = (*q.shape[:2], -1, self.head_dim)
        by_key_head = (*k.shape[:2], -1, self.head_dim)
        q, k, v = q.view(by_head), k.view(by_key_head), v.view(by_key_head)
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        before = (q.transpose(1, 2), k.transpose(1, 2))
        if table is not None and self.encoding.transform is not None:
            if key_table is None:
                q, k, v = self.encoding.transform(q, k, v, table)
            else:
                q = self.encoding.transform(q, q, q, table)[0]
                _, k, v = self.encoding.transform(k, k, v, key_table)
        # (B, T, H, D) -> (B, H, T, D), and (B, S, G, D) -> (B, G, S, D)
        return (q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), *before)


class CrossAttention(StockMultiheadAttention):
    """Encoder-decoder attention (Vaswani et al. 2017, section 3.2.3) through the fused kernel.

    Source and target positions are not comparable, so no position encoding is applied.

    Args:
        embed_dim: C of the decoder.
        num_heads: H.
        kv_heads: G, the number of heads of keys and values, a divisor of H.
        kwargs: passed to fairseq's attention (kdim, vdim, dropout, quantisation noise).
    """

    def __init__(self, embed_dim: int, num_heads: int, kv_heads: int, **kwargs: object) -> None:
        super().__init__(embed_dim, num_heads, encoder_decoder_attention=True, **kwargs)
        self.kv_heads = kv_heads
        if kv_heads < num_heads:
            keep_heads(self.k_proj, kv_heads * self.head_dim)
            keep_heads(self.v_proj, kv_heads * self.head_dim)

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
        """Keys and values of the source, (B or B/beam, G, S, D), cached if there is a cache."""
        if incremental_state is not None:
            saved = self._get_input_buffer(incremental_state)
            if saved.get("prev_key") is not None:
                return saved["prev_key"], saved["prev_value"]
            # equal rows for the hypotheses of one sentence: project and keep only one of them
            encoder_out = encoder_out[:: _beam(incremental_state)]
        by_head = (*encoder_out.shape[:2], self.kv_heads, self.head_dim)
        # (B, S, G·D) -> (B, S, G, D) -> (B, G, S, D)
        k = self.k_proj(encoder_out).view(by_head).transpose(1, 2)
        v = self.v_proj(encoder_out).view(by_head).transpose(1, 2)
        if incremental_state is not None:
            k, v = k.contiguous(), v.contiguous()  # read at every step
            self._set_input_buffer(incremental_state, {"prev_key": k, "prev_value": v})
        return k, v

    def reorder_incremental_state(
        self, incremental_state: IncrementalState, new_order: Tensor
    ) -> IncrementalState:
        """Keep the keys and values of the sentences that are left, which hypotheses share.

        Args:
            incremental_state: fairseq's cache.
            new_order: for every row the one that it continues, of the same sentence, (B', ).
        """
        saved, beam = self._get_input_buffer(incremental_state), _beam(incremental_state)
        if saved and saved["prev_key"].size(0) * beam != new_order.size(0):
            sentences = torch.div(new_order[::beam], beam, rounding_mode="floor")
            left = {name: x.index_select(0, sentences) for name, x in saved.items()}
            self._set_input_buffer(incremental_state, left)
        return incremental_state


def _beam(incremental_state: Any) -> int:
    """The number of hypotheses of each sentence; 1 if no search has said it."""
    return int(incremental_state.get(BEAM, 1))


def _fold(x: Tensor, beam: int) -> Tensor:
    """(B·beam, H, T, D) -> (B, H, beam·T, D)."""
    return x.reshape(-1, beam, *x.shape[1:]).transpose(1, 2).flatten(2, 3)


def _unfold(x: Tensor, beam: int) -> Tensor:
    """(B, H, beam·T, D) -> (B·beam, H, T, D)."""
    return x.reshape(*x.shape[:2], beam, -1, x.size(-1)).transpose(1, 2).flatten(0, 1)
