"""Softmax attention of blocks of queries to a part of the keys, in memory linear in the length.

A block of queries sees the keys of its own and of neighbouring blocks (:mod:`.blocks`), those of
the first G tokens, which are global, and those that a kernel chooses beside them.  Global queries
see all keys.  Where sequences have padding on the left they are turned, so that the first block
begins with the first real token: padding on either side changes nothing.
"""

from typing import Optional, Tuple, Union

import torch
from torch import Tensor

from fairseq_posenc.attention.base import Abilities, Positions, Tokens
from fairseq_posenc.attention.blocks import BlockBias, Blocks, turned
from fairseq_posenc.attention.by_blocks import BlockAttention, Replaced
from fairseq_posenc.attention.cache import IncrementalState, append_to_cache
from fairseq_posenc.attention.functional import aligned, attend, dropout_rate, product_dtype
from fairseq_posenc.attention.seen_keys import Seen
from fairseq_posenc.attention.softmax import MultiheadAttention
from fairseq_posenc.flags.options import Options


class SparseAttention(MultiheadAttention):
    """Base of the kernels with a pattern of their own; arguments as for softmax attention.

    A subclass sets ``pattern``, ``blocks`` and the number of global tokens, and defines
    :meth:`band` and :meth:`_cached_positions`.
    """

    abilities = Abilities(hooks=("transform", "shared"), changes_values=True)
    #: numbers of tokens at the start: G, the most that can be global, and those that always are
    global_tokens = always_global = 0
    #: The blocks of a sequence, in causal and in bidirectional attention.
    causal_blocks: Blocks
    both_blocks: Blocks

    @classmethod
    def abilities_for(cls, options: Options) -> Abilities:
        """No length factor: the number of visible keys hardly depends on the length."""
        return cls.abilities

    # --- once per forward pass

    def sparse_positions(self, tokens: Tokens) -> Positions:
        """Masks and content-free logits, by blocks in a full forward pass."""
        starts = None
        if tokens.left and tokens.padding_mask is not None:
            # padding in front; 0 for sequences of nothing but padding
            starts = (~tokens.padding_mask).long().argmax(dim=1, keepdim=True)
        if tokens.query_length < tokens.key_length:
            return self._cached_positions(tokens, starts)
        return self._block_positions(tokens, starts)

    def _block_positions(self, tokens: Tokens, starts: Optional[Tensor]) -> Positions:
        length, device = tokens.key_length, tokens.like.device
        blocks = self._blocks(tokens.causal, length)
        index = torch.arange(length, device=device).unsqueeze(0)
        visible = torch.ones_like(index, dtype=torch.bool)  # (1|B, S)
        if tokens.padding_mask is not None:
            visible = ~tokens.padding_mask
            visible = visible if starts is None else turned(visible, starts)
        maker = BlockBias(tokens, blocks, visible)
        parts, first = [], min(self.global_tokens, length)
        global_bias = global_rows = None
        is_global = index < first  # (1|B, S)
        if tokens.first_text is not None:
            is_global = index < tokens.first_text.clamp(self.always_global, first)
        if first:
            parts.append(maker.to_first(first, is_global))
            if not tokens.causal:
                global_bias = maker.from_first(first)
                rows = blocks.split(is_global[:, :first].expand(len(tokens.like), -1))
                global_rows = rows[..., None, None]  # (B·d, ·, L, 1, 1)
        parts.append(maker.to_window(self.band(blocks, tokens.causal, device), is_global))
        chosen = self._choose(tokens, visible)
        if chosen is not None:
            parts.append(maker.to_chosen(chosen, first))
        bias = torch.cat(parts, dim=-1)  # (1|B, d, N, 1|H, L, S)
        outer, batch = bias.shape[:3], len(tokens.like)
        bias = aligned(bias.flatten(0, 2)).unflatten(0, outer)
        whole = blocks.count(length) * blocks.size * blocks.dilation == length
        return {
            "bias": bias.expand(batch, *bias.shape[1:]).flatten(0, 1),  # (B·d, N, 1|H, L, S)
            "causal": tokens.causal,
            "empty_rows": tokens.padding_mask is not None or not whole,
            "global_bias": global_bias,
            "global_rows": global_rows,
            "starts": starts,
            "chosen": None if chosen is None else _among_all(chosen, batch),
        }

    def _blocks(self, causal: bool, length: int) -> Blocks:
        """The split of *length* tokens into blocks, without neighbours that no block has."""
        return (self.causal_blocks if causal else self.both_blocks).within(length)

    def band(self, blocks: Blocks, causal: bool, device: torch.device) -> Tensor:
        """True at the neighbouring tokens that each token of a block sees, (L, K)."""
        raise NotImplementedError

    def _choose(self, tokens: Tokens, visible: Tensor) -> Optional[Tensor]:
        """Further blocks of keys for each block of queries, (1|B, N, ·), -1 for none; or None."""
        return None

    def _cached_positions(self, tokens: Tokens, starts: Optional[Tensor]) -> Positions:
        """Masks and content-free logits of new tokens after others in the cache."""
        raise NotImplementedError

    # --- in every layer

    def forward(  # type: ignore[override]  # layers pass all but x by name
        self,
        x: Tensor,
        bias: Optional[Tensor] = None,
        causal: bool = False,
        table: Optional[Tensor] = None,
        empty_rows: bool = True,
        global_bias: Optional[Tensor] = None,
        global_rows: Optional[Tensor] = None,
        starts: Optional[Tensor] = None,
        chosen: Optional[Tensor] = None,
        incremental_state: IncrementalState = None,
        **unused: Union[None, bool, Tensor],
    ) -> Tensor:
        """Attend from the new tokens to those of the pattern; see :class:`.AttentionKernel`."""
        q, k, v = self.project(x, table)[:3]
        if self.cached_length(incremental_state):
            k, v = self._extend(k, v, starts, chosen, incremental_state)
            rate = dropout_rate(self.dropout_module)
            out = attend(q, k, v, self.encoding.scale, bias, False, rate, empty_rows)
        else:
            if incremental_state is not None:
                self._start(k, v, starts, incremental_state)
            from_global = self._global_heads(x, q, k, v, table) if global_bias is not None else None
            if starts is not None:
                q, k, v = (turned(each, starts, 2) for each in (q, k, v))
            assert bias is not None  # at least the window
            rows = None
            if global_bias is not None and from_global is not None:
                if starts is not None:
                    from_global = tuple(turned(each, starts, 2) for each in from_global)
                rows = self._global_rows(from_global, global_bias)
            seen = self._seen(causal, q.size(2), chosen)
            out = self._by_blocks((q, k, v), seen, bias, empty_rows, rows, global_rows)
            out = out if starts is None else turned(out, -starts, 2)
        return self.out_proj(out.transpose(1, 2).flatten(2))  # (B, H, T, D) -> (B, T, C)

    def _global_heads(
        self, x: Tensor, q: Tensor, k: Tensor, v: Tensor, table: Optional[Tensor]
    ) -> Tuple[Tensor, ...]:
        """Queries, keys and values, (B, H, T, D) each, where queries are global."""
        return q, k, v

    def _global_rows(self, from_global: Tuple[Tensor, ...], global_bias: Tensor) -> Tensor:
        """The output of the global queries, which see all keys, (B, H, G, D).

        Args:
            from_global: queries, keys and values, (B, H, T, D) each.
            global_bias: (1|B, 1|H, G, S).
        """
        q, k, v = from_global
        rate = dropout_rate(self.dropout_module)
        # a copy, or autograd would keep the queries of all tokens
        q = q[:, :, : global_bias.size(2)].contiguous()
        return attend(q, k, v, self.encoding.scale, global_bias, dropout=rate)

    def _seen(self, causal: bool, length: int, chosen: Optional[Tensor]) -> Seen:
        """The keys that each block of *length* tokens sees."""
        return Seen(self._blocks(causal, length), min(self.global_tokens, length), chosen)

    def _by_blocks(
        self,
        heads: Tuple[Tensor, ...],
        seen: Seen,
        bias: Tensor,
        empty_rows: bool,
        rows: Optional[Tensor],
        global_rows: Optional[Tensor],
    ) -> Tensor:
        """The output of the pattern, (B, H, T, D), with the *rows* of global queries.

        Args:
            heads: queries, keys and values, (B, H, T, D) each.
            seen: the keys that each block sees.
            bias: (B·d, N, 1|H, L, S).
            empty_rows: False if no row of *bias* hides all keys.
            rows: the output of global queries, (B, H, G, D), or None.
            global_rows: True at first tokens that are global, (B·d, ·, L, 1, 1), or None.
        """
        length, blocks, dtype = heads[0].size(2), seen.blocks, product_dtype(heads[0])
        attention = BlockAttention(
            seen, self.encoding.scale, dropout_rate(self.dropout_module), empty_rows
        )
        # (B, H, T, D) -> (B·d, N, L, H, D)
        split = [blocks.split(x.to(dtype).transpose(1, 2)) for x in heads]
        replaced = None
        if rows is not None and global_rows is not None:
            replaced = Replaced(global_rows, blocks.split(rows.to(dtype).transpose(1, 2)))
        out = attention(split[0], split[1], split[2], bias, replaced)
        return blocks.join(out, length).transpose(1, 2)

    # --- the cache

    def _start(
        self, k: Tensor, v: Tensor, starts: Optional[Tensor], state: IncrementalState
    ) -> None:
        """Begin the cache with keys and values of the first tokens, (B, H, T, D)."""
        append_to_cache(self, k, v, state)

    def _extend(
        self,
        k: Tensor,
        v: Tensor,
        starts: Optional[Tensor],
        chosen: Optional[Tensor],
        state: IncrementalState,
    ) -> Tuple[Tensor, Tensor]:
        """Add new keys and values to the cache, and return those that new queries may see."""
        raise NotImplementedError


def _among_all(chosen: Tensor, batch: int) -> Tensor:
    """Blocks *chosen* (1|B, N, r) of each sentence among the blocks of all, (B, N, r)."""
    blocks = chosen.size(1)
    rows = torch.arange(batch, device=chosen.device).view(-1, 1, 1) * blocks
    return chosen.clamp(min=0) + rows
