"""Softmax attention from blocks of queries to some of the keys, in memory linear in the length.

A block of queries sees the keys of the same block and its neighbours (:mod:`.blocks`), the keys of
the first G tokens, which are global, and the keys of further blocks if the kernel chooses any.  In
bidirectional attention, global queries see all keys.  Sequences with padding on the left are rolled
so that the first block begins with the first real token; padding on either side changes no output.
"""

from typing import Any, Dict, Mapping, Optional, Tuple

import torch
from torch import Tensor

from fairseq_posenc.attention.blocks import BlockBias, Blocks, rolled
from fairseq_posenc.attention.by_blocks import BlockAttention, Seen
from fairseq_posenc.attention.cache import IncrementalState, Parts, append_to_cache
from fairseq_posenc.attention.functional import Batch, aligned, attend, dropout_rate, product_dtype
from fairseq_posenc.attention.softmax import MultiheadAttention
from fairseq_posenc.encodings import Places


class SparseAttention(MultiheadAttention):
    """Base of kernels with a sparse pattern; the arguments are those of softmax attention.

    A subclass sets the blocks and the number of global tokens, and defines :meth:`band` and
    :meth:`_after_cache`.
    """

    takes = frozenset({"transform", "values", "shared"})
    traceable, static_cache = False, ""
    #: G, how many tokens can be global, counted from the first; and how many of them always are
    global_tokens = always_global = 0
    #: The blocks of a sequence, in causal and in bidirectional attention.
    causal_blocks: Blocks
    both_blocks: Blocks

    # --- once per forward pass

    def prepare(self, batch: Batch, places: Places) -> Dict[str, Any]:
        """Masks and content-free logits of the pattern; no tensor of size T·S is made.

        Returns:
            ``bias``: (1|B, 1|H, T, ·) for tokens after a cache, else (B·d, N, 1|H, L, S) for
            blocks; ``empty_rows``: whether a query may see no key; ``starts``: the number of
            padding tokens before each sequence, (B, 1), or None; ``chosen``: the further keys or
            blocks of keys that the kernel chooses, or None.  Without a cache also ``causal``;
            ``global_bias``: the bias of global queries, (1|B, 1|H, G, S), or None; ``is_global``:
            whether each of the first G tokens is global, (1|B, 1, G, 1), or None.
        """
        starts, padding = None, batch.padding
        if padding.left and padding.mask is not None:
            # number of padding tokens in front; 0 for sequences that consist of padding only
            starts = (~padding.mask).long().argmax(dim=1, keepdim=True)
        make = self._after_cache if batch.like.size(1) < batch.length else self._by_block
        return make(batch, starts)

    def _by_block(self, batch: Batch, starts: Optional[Tensor]) -> Dict[str, Any]:
        """The prepared arguments for whole sequences."""
        length, padding = batch.length, batch.padding
        device, rows = batch.like.device, len(batch.like)
        blocks = self._blocks(batch.causal, length)
        index = torch.arange(length, device=device).unsqueeze(0)
        visible = torch.ones_like(index, dtype=torch.bool)  # (1|B, S)
        positions = None if batch.assigned is None else batch.assigned.keys
        if padding.mask is not None:
            visible = ~padding.mask
            visible = visible if starts is None else rolled(visible, starts)
        if positions is not None and starts is not None:
            positions = rolled(positions.expand(rows, -1), starts)
        maker = BlockBias(self.encoding, batch, positions, blocks, visible)
        parts, first = [], min(self.global_tokens, length)
        global_bias = None
        is_global = index < first  # (1|B, S)
        if padding.first_text is not None:
            is_global = index < padding.first_text.clamp(self.always_global, first)
        if first:
            parts.append(maker.to_first(first, is_global))
            if not batch.causal:
                global_bias = maker.from_first(first)
        parts.append(maker.to_window(self.band(blocks, batch.causal, device), is_global))
        chosen = self._choose(batch, visible)
        if chosen is not None:
            parts.append(maker.to_chosen(chosen))
            before = torch.arange(rows, device=device).view(-1, 1, 1) * chosen.size(1)
            chosen = chosen.clamp(min=0) + before  # index among all blocks of the batch
        bias = torch.cat(parts, dim=-1)  # (1|B, d, N, 1|H, L, S)
        outer = bias.shape[:3]
        bias = aligned(bias.flatten(0, 2)).unflatten(0, outer)
        whole = blocks.count(length) * blocks.size * blocks.dilation == length
        return {
            "bias": bias.expand(rows, *bias.shape[1:]).flatten(0, 1),  # (B·d, N, 1|H, L, S)
            "causal": batch.causal,
            "empty_rows": padding.mask is not None or not whole,
            "global_bias": global_bias,
            "is_global": None if global_bias is None else is_global[:, None, :first, None],
            "starts": starts,
            "chosen": chosen,
        }

    def _blocks(self, causal: bool, length: int) -> Blocks:
        """The split of *length* tokens into blocks, with only those neighbours that exist."""
        return (self.causal_blocks if causal else self.both_blocks).within(length)

    def band(self, blocks: Blocks, causal: bool, device: torch.device) -> Tensor:
        """Mask (L, K), True where a token of a block sees a token in or around the block."""
        raise NotImplementedError

    def _choose(self, batch: Batch, visible: Tensor) -> Optional[Tensor]:
        """Indices of further blocks of keys for each block of queries, (1|B, N, ·), -1 for none."""
        return None

    def _after_cache(self, batch: Batch, starts: Optional[Tensor]) -> Dict[str, Any]:
        """The prepared arguments for new tokens that follow a cache."""
        raise NotImplementedError

    # --- in every layer

    def forward(
        self,
        x: Tensor,
        keys: Optional[Tensor] = None,
        incremental_state: IncrementalState = None,
        **prepared: Any,
    ) -> Tensor:
        """Attend from new tokens to the keys of the pattern; see :class:`.AttentionKernel`."""
        heads: Tuple[Tensor, ...] = self.project(x, prepared)[:3]
        q, k, v = heads
        starts, new = prepared["starts"], {"prev_key": k, "prev_value": v}
        if self.cached_length(incremental_state):
            k, v = self._extend(new, prepared, incremental_state)
            rate, empty_rows = dropout_rate(self.dropout_module), prepared["empty_rows"]
            bias = prepared["bias"]
            out = attend(q, k, v, self.encoding.scale, bias, False, rate, empty_rows)
        else:
            if incremental_state is not None:
                self._start(new, starts, incremental_state)
            global_bias, rows = prepared["global_bias"], None
            if global_bias is not None:
                from_global = self._global_heads(x, heads, prepared)
                if starts is not None:
                    from_global = tuple(rolled(each, starts, 2) for each in from_global)
                rows = self._global_rows(from_global, global_bias)
            if starts is not None:
                heads = tuple(rolled(each, starts, 2) for each in heads)
            out = self._by_blocks(heads, prepared)
            if rows is not None:
                first = rows.size(2)
                rows = torch.where(prepared["is_global"], rows.type_as(out), out[:, :, :first])
                out = torch.cat((rows, out[:, :, first:]), dim=2)
            out = out if starts is None else rolled(out, -starts, 2)
        return self.out_proj(out.transpose(1, 2).flatten(2))  # (B, H, T, D) -> (B, T, C)

    def _global_heads(
        self, x: Tensor, heads: Tuple[Tensor, ...], tables: Mapping[str, Any]
    ) -> Tuple[Tensor, ...]:
        """Queries, keys and values for the attention of global queries, (B, H, T, D) each."""
        return heads

    def _global_rows(self, from_global: Tuple[Tensor, ...], global_bias: Tensor) -> Tensor:
        """The output (B, H, G, D) of the global queries, which see all keys."""
        q, k, v = from_global
        rate = dropout_rate(self.dropout_module)
        # a copy, because with a view autograd would save the queries of all tokens
        q = q[:, :, : global_bias.size(2)].contiguous()
        return attend(q, k, v, self.encoding.scale, global_bias, dropout=rate)

    def _by_blocks(self, heads: Tuple[Tensor, ...], prepared: Mapping[str, Any]) -> Tensor:
        """The output for all blocks; *heads* are queries, keys and values, (B, H, T, D) each."""
        length, dtype = heads[0].size(2), product_dtype(heads[0])
        blocks = self._blocks(prepared["causal"], length)
        seen = Seen(blocks, min(self.global_tokens, length), prepared["chosen"])
        rate, empty_rows = dropout_rate(self.dropout_module), prepared["empty_rows"]
        attention = BlockAttention(seen, self.encoding.scale, rate, empty_rows)
        # (B, H, T, D) -> (B·d, N, L, H, D)
        q, k, v = (blocks.split(x.to(dtype).transpose(1, 2)) for x in heads)
        return blocks.join(attention(q, k, v, prepared["bias"]), length).transpose(1, 2)

    # --- the cache

    def _start(self, new: Parts, starts: Optional[Tensor], state: IncrementalState) -> None:
        """Begin the cache with *new*, the keys and values of all tokens so far, (B, H, T, D)."""
        append_to_cache(self, new, state)

    def _extend(
        self, new: Parts, prepared: Mapping[str, Any], state: IncrementalState
    ) -> Tuple[Tensor, Tensor]:
        """Add keys and values to the cache, and return those that the new queries may see."""
        raise NotImplementedError
