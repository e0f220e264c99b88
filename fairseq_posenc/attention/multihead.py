"""Multi-head self-attention for every position encoding, with fairseq's parameters and cache.

Parameter names are fairseq's (q_proj, k_proj, v_proj, out_proj), so checkpoints and every flag
that looks for them (quantisation noise, pruning, initialisation) go on working.
"""

from functools import partial
from typing import Any, Dict, Optional, Tuple

import torch
from fairseq.modules import MultiheadAttention as StockMultiheadAttention
from torch import Tensor

from fairseq_posenc.attention.functional import (
    add_terms,
    attend,
    attend_with_weights,
    combined_masks,
)
from fairseq_posenc.encodings import PositionEncoding

IncrementalState = Optional[Dict[str, Dict[str, Optional[Tensor]]]]


def split_heads(x: Tensor, head_dim: int) -> Tensor:
    """(T, B, C) -> (T, B, H, D)."""
    return x.view(x.size(0), x.size(1), -1, head_dim)


def join_heads(x: Tensor) -> Tensor:
    """(B, H, T, D) -> (T, B, C)."""
    return x.permute(2, 0, 1, 3).flatten(2)


def attention_dropout(module: Any) -> float:
    """Dropout on the attention weights in force now (fairseq may keep it on at inference)."""
    dropout = module.dropout_module
    return dropout.p if module.training or dropout.apply_during_inference else 0.0


class MultiheadAttention(StockMultiheadAttention):
    """Self-attention whose queries and keys know their position (RoFormer Eq. 1 and 2).

    Args:
        embed_dim: C.
        num_heads: H.
        encoding: what the stack's ``--position-encoding`` composed.
        kwargs: passed to fairseq's attention (dropout, quantisation noise).
    """

    masks = staticmethod(combined_masks)  # how the stack hands padding and causality over

    def __init__(
        self, embed_dim: int, num_heads: int, encoding: PositionEncoding, **kwargs: Any
    ) -> None:
        super().__init__(embed_dim, num_heads, self_attention=True, **kwargs)
        self.encoding = encoding
        self.position_terms = encoding.build_layer()

    def forward(
        self,
        x: Tensor,
        bias: Optional[Tensor] = None,
        causal: bool = False,
        table: Optional[Tensor] = None,
        query_positions: Optional[Tensor] = None,
        key_positions: Optional[Tensor] = None,
        distance_vectors: Optional[Tensor] = None,
        incremental_state: IncrementalState = None,
        need_weights: bool = False,
    ) -> Tuple[Tensor, Optional[Tensor]]:
        """Attend from the new tokens to all tokens so far.

        Args:
            x: layer input for the new tokens, (T, B, C).
            bias: masks and content-free logits, (1|B, 1|H, 1|T, S), or None.
            causal: hide later keys where no *bias* does.
            table: what changes q and k at the new positions, such as a rotation, or None.
            query_positions: (1|B, T), for content-dependent terms; else None.
            key_positions: (1|B, S), likewise.
            distance_vectors: (N, L, C) of L distances, for those of N terms; else None.
            incremental_state: fairseq's cache; keys are kept already rotated.
            need_weights: also return the attention weights.

        Returns:
            output (T, B, C) and weights (B, H, T, S) or None.
        """
        q, k, v, content_q, content_k = self.project(x, table)
        k, v, content_k = append_to_cache(self, k, v, content_k, incremental_state)
        given = (query_positions, key_positions, distance_vectors, incremental_state)
        bias = add_terms(bias, content_logits(self, content_q, content_k, *given))
        terms: Any = self.position_terms
        more_values = None
        if terms is not None and terms.needs_weights:
            positions = {"query_positions": query_positions, "key_positions": key_positions}
            more_values = partial(terms.more_values, **positions)
        arguments = (q, k, v, self.encoding.scale, bias, causal, attention_dropout(self))
        if need_weights or more_values is not None:
            out, weights = attend_with_weights(*arguments, more_values)
        else:
            out, weights = attend(*arguments), None
        return self.out_proj(join_heads(out)), weights if need_weights else None

    def project(self, x: Tensor, table: Optional[Tensor]) -> Tuple[Tensor, ...]:
        """Queries, keys and values of the new tokens, positions included.

        Args:
            x: layer input for the new tokens, (T, B, C).
            table: what changes q and k at their positions, or None.

        Returns:
            q, k and v, (B, H, T, D) each, then q and k without what *table* does to them.
        """
        q = split_heads(self.q_proj(x), self.head_dim)  # (T, B, C) -> (T, B, H, D)
        k = split_heads(self.k_proj(x), self.head_dim)
        v = split_heads(self.v_proj(x), self.head_dim)
        mapped = self.encoding.map(q, k, v, table)
        # (T, B, H, D) -> (B, H, T, D)
        return tuple(t.permute(1, 2, 0, 3) for t in (*mapped, q, k))

    def extra_repr(self) -> str:
        """What ``print(model)`` says of this layer."""
        return f"encoding={self.encoding.name}, heads={self.num_heads}, head_dim={self.head_dim}"

    def cached_length(self, incremental_state: IncrementalState) -> int:
        """How many tokens of this layer's cache precede the new ones."""
        key = self._get_input_buffer(incremental_state).get("prev_key")
        return 0 if key is None else key.size(2)


def append_to_cache(
    layer: Any, k: Tensor, v: Tensor, content_k: Tensor, incremental_state: IncrementalState
) -> Tuple[Tensor, ...]:
    """Keys, values and plain keys of all tokens so far, (B, H, S, D or e), if there is a cache.

    Plain keys are cached only where a layer's terms need them beside mapped ones.  Beam search
    reorders the cache.
    """
    if incremental_state is None:
        return k, v, content_k
    new = {"prev_key": k, "prev_value": v}
    if layer.position_terms is not None and layer.encoding.query_key is not None:
        new["prev_content_key"] = content_k
    saved = layer.get_incremental_state(incremental_state, "attn_state")
    if saved is not None:
        new = {name: extend_cache(saved[name], tensor) for name, tensor in new.items()}
    layer.set_incremental_state(incremental_state, "attn_state", new)
    return new["prev_key"], new["prev_value"], new.get("prev_content_key", new["prev_key"])


def extend_cache(old: Tensor, new: Tensor) -> Tensor:
    """Concatenate (B, H, S, D) and (B, H, T, D) in time, as (B·H, S + T, D).

    PyTorch concatenates 3-d tensors on a CPU several times faster than 4-d ones.
    """
    both = torch.cat((old.flatten(0, 1), new.flatten(0, 1)), dim=1)
    return both.view(*old.shape[:2], -1, old.size(3))


def content_logits(
    layer: Any,
    content_q: Tensor,
    content_k: Tensor,
    query_positions: Optional[Tensor],
    key_positions: Optional[Tensor],
    distance_vectors: Optional[Tensor],
    incremental_state: IncrementalState,
) -> Optional[Tensor]:
    """Scaled sum of the content-dependent terms of *layer*, (B, H, T, S), or None without any.

    What they make of the distance vectors is kept between the steps of one decoding; it is the same
    for all hypotheses, so beam search need not reorder it.
    """
    if layer.position_terms is None:
        return None
    memory: Any = layer.get_incremental_state(incremental_state, "position_terms") or {}
    logits = layer.position_terms(
        content_q,
        content_k,
        layer.encoding.scale,
        query_positions,
        key_positions,
        distance_vectors,
        memory,
    )
    if incremental_state is not None:
        layer.set_incremental_state(incremental_state, "position_terms", memory)
    return logits
