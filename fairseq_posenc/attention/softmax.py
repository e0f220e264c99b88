"""Multi-head softmax attention: self-attention and attention to the source."""

from dataclasses import dataclass
from functools import partial
from typing import Any, Dict, Mapping, Optional, Sequence, Tuple

import torch
from fairseq.modules import MultiheadAttention as StockMultiheadAttention
from torch import Tensor, nn

from fairseq_posenc.attention.base import MultiheadKernel, register_attention
from fairseq_posenc.attention.cache import BEAM, IncrementalState
from fairseq_posenc.attention.functional import (
    Batch,
    attend,
    attend_with_weights,
    dropout_rate,
    masks,
)
from fairseq_posenc.attention.grouped import (
    HeadFlags,
    check_groups,
    keep_heads,
    kv_heads_of,
    repeat_heads,
)
from fairseq_posenc.attention.pairs import Counts, Heads, PairwiseKernel, log_ratio
from fairseq_posenc.encodings import Places, PositionEncoding
from fairseq_posenc.flags.options import Options, option
from fairseq_posenc.flags.settings import setting


@dataclass
class SoftmaxFlags(HeadFlags):
    """Flags of softmax attention."""

    log_length_scale: Optional[int] = setting(
        None,
        "a length N in tokens, usually that of training: q·k is multiplied by log(n) / log(N), "
        "where n is the number of keys that a query sees, as with --gau-normaliser softmax_plus",
        at_least=2,
        at_most=2**31 - 1,
    )


@register_attention(
    "softmax",
    paper="Vaswani et al. 2017, arXiv 1706.03762",
    summary="scaled dot-product attention, fused where PyTorch supports it",
    flags=SoftmaxFlags,
)
class MultiheadAttention(MultiheadKernel, PairwiseKernel):
    """Self-attention with position-dependent queries and keys (RoFormer Eq. 1 and 2).

    Arguments are those of :class:`MultiheadKernel`.
    """

    takes = frozenset({"transform", "values", "shared", "content", "keys", "any_order"})
    traceable = True
    static_cache = "keys"

    def __init__(
        self, embed_dim: int, num_heads: int, encoding: PositionEncoding, **kwargs: object
    ) -> None:
        super().__init__(embed_dim, num_heads, encoding, **kwargs)
        options = encoding.options
        #: G, the number of heads of keys and values
        self.kv_heads = kv_heads_of(options, encoding.stack.side, num_heads)
        if self.kv_heads < num_heads:
            check_groups(encoding, self.kv_heads)
            keep_heads(self.k_proj, self.kv_heads * self.head_dim)
            keep_heads(self.v_proj, self.kv_heads * self.head_dim)
        self.compose(encoding)
        normed = bool(option(options, "qk_norm"))
        # Dehghani et al. 2023, arXiv 2302.05442, section 2; --norm replaces these norms, too
        self.q_norm = nn.LayerNorm(self.head_dim) if normed else None
        self.k_norm = nn.LayerNorm(self.head_dim) if normed else None
        self.length_scale = option(options, "log_length_scale")
        self.scales_by_length = self.length_scale is not None

    @classmethod
    def heads(cls, options: Options, side: str) -> Tuple[int, int]:
        """H and D; refuses a number of key heads that does not divide H."""
        number, size = super().heads(options, side)
        kv_heads_of(options, side, number)
        return number, size

    def length_factor(self, counts: Counts) -> Counts:
        """log n / log N of ``--log-length-scale`` (GAU section 3.3)."""
        return log_ratio(counts, self.length_scale)

    def prepare(self, batch: Batch, places: Places) -> Dict[str, Any]:
        """Masks and content-free logits, and the results of :meth:`.PairwiseKernel.terms`."""
        prepared = masks(self, batch, places)
        if self.position_terms is not None or self.scales_by_length:
            prepared.update(self.terms(batch, places))
        return prepared

    def forward(
        self,
        x: Tensor,
        keys: Optional[Tensor] = None,
        incremental_state: IncrementalState = None,
        **prepared: Any,
    ) -> Tensor:
        """Attend from the new tokens to all tokens so far; see :class:`.AttentionKernel`."""
        heads, terms = self.project(x, prepared, keys), self.position_terms
        if incremental_state is not None or terms is not None:
            heads = self.extended(heads, x if keys is None else keys, incremental_state)
        q, scale, bias, content = heads.q, self.encoding.scale, prepared["bias"], None
        if terms is not None or self.scales_by_length:
            q, scale, bias, content = self.logits(x, heads, prepared, incremental_state)
        k, v, relative_values = heads.k, heads.v, None
        if terms is not None and content is not None and terms.needs_weights:
            # adding vectors to the values takes fewer operations, but more time on a CPU
            added = terms.added_values(content) if x.is_cuda else None
            if added is None:
                relative_values = partial(terms.relative_values, content)
            else:
                if added.size(1) > 1:  # the added values differ by head
                    k, v = repeat_heads(k, self.num_heads), repeat_heads(v, self.num_heads)
                v = v + added.type_as(v)
        rate = dropout_rate(self.dropout_module)
        inputs = (q, k, v, scale, bias, prepared["causal"], rate, prepared["empty_rows"])
        if relative_values is None:
            out = attend(*inputs)
        else:
            out, _ = attend_with_weights(*inputs, relative_values)
        return self.out_proj(out.transpose(1, 2).flatten(2))  # (B, H, T, D) -> (B, T, C)

    def project(
        self,
        x: Tensor,
        tables: Mapping[str, Any],
        keys: Optional[Tensor] = None,
        projections: Optional[Sequence[nn.Module]] = None,
    ) -> Heads:
        """Queries, keys and values of the new tokens x (B, T, C), with positions applied.

        If *keys* (B, S, C) is passed, keys and values are projected from it, and transformed with
        ``key_table`` if *tables* has it.  *projections* replace q_proj, k_proj and v_proj.
        """
        if projections is not None:
            q, k, v = (projection(x) for projection in projections)
        elif keys is not None:
            q, k, v = self.q_proj(x), self.k_proj(keys), self.v_proj(keys)
        else:
            joint = self.joint_product(x) if self.joined else None
            q, k, v = joint or (self.q_proj(x), self.k_proj(x), self.v_proj(x))
        # (B, T, H·D) -> (B, T, H, D), and (B, S, G·D) -> (B, S, G, D)
        by_head = (*q.shape[:2], -1, self.head_dim)
        by_key_head = (*k.shape[:2], -1, self.head_dim)
        q, k, v = q.view(by_head), k.view(by_key_head), v.view(by_key_head)
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        plain = (q.transpose(1, 2), k.transpose(1, 2))
        transform = self.encoding.transform
        if transform is not None and "key_table" in tables:
            q = transform(q, q, q, tables["table"])[0]
            _, k, v = transform(k, k, v, tables["key_table"])
        elif transform is not None:
            q, k, v = transform(q, k, v, tables["table"])
        # (B, T, H, D) -> (B, H, T, D), and (B, S, G, D) -> (B, G, S, D)
        return Heads(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), *plain)


class CrossAttention(StockMultiheadAttention):
    """Encoder-decoder attention (Vaswani et al. 2017, section 3.2.3) through the fused kernel.

    Source and target positions are not comparable, so no position encoding is applied.

    The constructor takes C of the decoder, H, G (a divisor of H), and further arguments of
    fairseq's attention.
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
        """Attend to the source; returns the output (B, T, C), and weights (B, H, T, S) or None.

        *x* (B, T, C) are decoder states of new tokens, *encoder_out* is (B, S, C of the encoder),
        and *bias* is the padding mask of the source, (B, 1, 1, S).  With a cache, source keys and
        values are projected only once.
        """
        q = self.q_proj(x).view(x.size(0), x.size(1), self.num_heads, self.head_dim)
        q = q.transpose(1, 2)  # (B, T, H, D) -> (B, H, T, D)
        k, v = self._source(encoder_out, incremental_state)
        beam = q.size(0) // k.size(0)
        if beam > 1:  # the hypotheses of a sentence share its keys: join their queries
            q = q.reshape(-1, beam, *q.shape[1:]).transpose(1, 2).flatten(2, 3)  # (B, H, beam·T, D)
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
        """Keys and values of the source, (B or B/beam, G, S, D), from the cache if there is one."""
        if incremental_state is not None:
            saved = self._get_input_buffer(incremental_state)
            if saved.get("prev_key") is not None:
                return saved["prev_key"], saved["prev_value"]
            # the rows of one sentence's hypotheses are equal: project and keep only one of them
            encoder_out = encoder_out[:: _beam(incremental_state)]
        by_head = (*encoder_out.shape[:2], self.kv_heads, self.head_dim)
        # (B, S, G·D) -> (B, S, G, D) -> (B, G, S, D)
        k = self.k_proj(encoder_out).view(by_head).transpose(1, 2)
        v = self.v_proj(encoder_out).view(by_head).transpose(1, 2)
        if incremental_state is not None:
            k, v = k.contiguous(), v.contiguous()  # because every step reads them
            self._set_input_buffer(incremental_state, {"prev_key": k, "prev_value": v})
        return k, v

    def reorder_incremental_state(
        self, incremental_state: IncrementalState, new_order: Tensor
    ) -> IncrementalState:
        """Keep the source keys and values of unfinished sentences, whose hypotheses share them.

        *new_order* (B',): for each new row, the old row, of the same sentence, that it continues.
        """
        saved, beam = self._get_input_buffer(incremental_state), _beam(incremental_state)
        if saved and saved["prev_key"].size(0) * beam != new_order.size(0):
            sentences = torch.div(new_order[::beam], beam, rounding_mode="floor")
            left = {name: x.index_select(0, sentences) for name, x in saved.items()}
            self._set_input_buffer(incremental_state, left)
        return incremental_state


def _beam(incremental_state: Any) -> int:
    """The number of hypotheses per sentence; 1 unless beam search has set it."""
    return int(incremental_state.get(BEAM, 1))


def _unfold(x: Tensor, beam: int) -> Tensor:
    """Separate hypotheses: (B, H, beam·T, D) -> (B·beam, H, T, D)."""
    return x.reshape(*x.shape[:2], beam, -1, x.size(-1)).transpose(1, 2).flatten(0, 1)
