"""Reformer: softmax attention among tokens that are hashed into the same bucket.

Kitaev et al. 2020, arXiv 2001.04451.
"""

from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_posenc.attention.base import AttentionKernel, MultiheadKernel, register_attention
from fairseq_posenc.attention.blocks import masked_logits
from fairseq_posenc.attention.cache import STATE, IncrementalState, append_to_cache
from fairseq_posenc.attention.functional import Batch, aligned, attend, dropout_rate
from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.tensors import AT_LEAST_FLOAT32, no_autocast
from fairseq_posenc.encodings import Encoding, Places, PositionEncoding, Stack
from fairseq_posenc.flags.options import Options
from fairseq_posenc.flags.settings import setting
from fairseq_posenc.packs.long_sequences.hashing import CHUNKS, MOST_BUCKETS, Hashing


@dataclass
class ReformerFlags:
    """Flags of Reformer."""

    reformer_buckets: Optional[int] = setting(
        64,
        "number of buckets of --attention reformer, an even number; usually the longest input "
        "divided by --reformer-chunk, or twice that",
        at_least=2,
        at_most=MOST_BUCKETS,
    )
    reformer_rounds: Optional[int] = setting(
        4,
        "rounds of hashing; more rounds find more of the keys that are similar to a query",
        at_least=1,
        at_most=64,
    )
    reformer_chunk: Optional[int] = setting(
        64,
        "tokens in a chunk of a bucket; a query attends to its chunk and the one before",
        at_least=1,
        at_most=2**16,
    )
    reformer_released: Optional[bool] = setting(
        False,
        "logits q·k/|k|, as in the released code (trax and transformers); by default they are also "
        "divided by the root of the head size, a factor that the paper's equations omit",
    )
    reformer_seed: Optional[int] = setting(1, "seed of the hashing", role="training")


@register_attention(
    "reformer",
    paper="Kitaev et al. 2020, arXiv 2001.04451",
    summary="softmax among tokens of the same bucket, by locality-sensitive hashing",
    flags=ReformerFlags,
)
class ReformerAttention(MultiheadKernel):
    """Attention to tokens of the same bucket, with shared queries and keys (section 2).

    Queries are x W, and keys are normalised queries; q·k is divided by √D unless
    ``--reformer-released`` is given.  A token attends to itself only if it sees no other token.  A
    query attends to the union of the keys of all rounds (Eq. 6 to 8); N of appendix A gives a key
    that occurs in several rounds the weight of a single key.

    The paper cuts the whole sorted sequence into chunks.  Here each bucket is cut separately, since
    cuts of the sorted sequence would depend on later tokens.  For the same reason the number of
    buckets is fixed.  Vectors are hashed before positions rotate them, so buckets depend on content
    alone.  Arguments are those of :class:`MultiheadKernel`.
    """

    takes = frozenset({"linear", "values"})

    def __init__(
        self, embed_dim: int, num_heads: int, encoding: PositionEncoding, **kwargs: object
    ) -> None:
        super().__init__(embed_dim, num_heads, encoding, **kwargs)
        self.k_proj = self.q_proj
        options = encoding.options
        self.scale = 1.0 if options.reformer_released else encoding.scale
        sizes = (int(options.reformer_buckets), int(options.reformer_rounds))
        self.seed = f"{options.reformer_seed} {encoding.stack.side}"
        self.hashing = Hashing(
            self.head_dim, *sizes, int(options.reformer_chunk), key=f"{self.seed} 0"
        )

    @classmethod
    def check(cls, options: Options, encodings: List[Encoding], stacks: List[Stack]) -> None:
        """Refuse an odd number of buckets."""
        if options.reformer_buckets % 2:
            raise UsageError(
                f"--reformer-buckets {options.reformer_buckets}: half of the buckets are for "
                "negated vectors; give an even number"
            )

    def set_layer(self, index: int, first: AttentionKernel) -> None:
        """Draw rotations that differ from those of the other layers of the stack."""
        super().set_layer(index, first)
        self.hashing.draw(f"{self.seed} {index}")

    def prepare(self, batch: Batch, places: Places) -> Dict[str, Any]:
        """``causal``, and ``padding_mask`` of the new tokens, (B, T), or None."""
        return {"causal": batch.causal, "padding_mask": batch.new_padding}

    def forward(
        self,
        x: Tensor,
        keys: Optional[Tensor] = None,
        incremental_state: IncrementalState = None,
        **prepared: Any,
    ) -> Tensor:
        """Attend from the new tokens to all so far; see :class:`.AttentionKernel`."""
        q, v = self.by_head(self.q_proj(x)), self.by_head(self.v_proj(x))
        causal, transform = prepared["causal"], self.encoding.transform
        dtype, wide = v.dtype, AT_LEAST_FLOAT32[v.dtype]
        with no_autocast(x.device):
            q, v = q.to(wide), v.to(wide)
            buckets = self.hashing.buckets_of(q.transpose(1, 2), prepared["padding_mask"])
            k = F.normalize(q, dim=-1)
            if transform is not None:
                q, k, v = transform(q, k, v, prepared["table"])
            # (B, T, H, D) -> (B, H, T, D)
            q, k, v = (t.transpose(1, 2) for t in (q, k, v))
            saved = self.get_incremental_state(incremental_state, STATE)
            earlier = saved["prev_buckets"].transpose(2, 3) if saved else None
            codes = key_codes = self.hashing.codes(buckets, earlier)
            if incremental_state is not None:
                parts = {"prev_key": k, "prev_value": v}  # (B, H, T, D), and (B, H, T, R)
                parts.update(prev_buckets=buckets.transpose(2, 3), prev_codes=codes.transpose(2, 3))
                parts = append_to_cache(self, parts, incremental_state)
                k, v = parts["prev_key"], parts["prev_value"]
                key_codes = parts["prev_codes"].transpose(2, 3)
            if saved or self._few(x.size(1)):
                out = self._dense(q, k, v, codes, key_codes, causal)
            else:
                out = self._chunked(q, k, v, buckets, codes, causal)
        out = out.to(dtype).transpose(1, 2).flatten(2)  # (B, H, T, D) -> (B, T, C)
        return self.out_proj(out)

    def _few(self, length: int) -> bool:
        """True if, for *length* tokens, chunks take at least as many products as all pairs."""
        size, rounds = self.hashing.chunk, self.hashing.rounds
        return length * length <= rounds * self.hashing.most_chunks(length) * 2 * size * size

    def _dense(
        self, q: Tensor, k: Tensor, v: Tensor, codes: Tensor, key_codes: Tensor, causal: bool
    ) -> Tensor:
        """Outputs (B, H, T, D) of the last T of S tokens, from their products with all S keys.

        *codes* (B, H, R, T) are the codes of the queries, *key_codes* (B, H, R, S) of the keys.
        """
        visible = self.hashing.visible(codes.unsqueeze(-1), key_codes.unsqueeze(-2)).any(dim=2)
        at = torch.arange(k.size(2), device=k.device)
        query_at = at[k.size(2) - q.size(2) :].unsqueeze(-1)
        visible = visible & (at <= query_at) if causal else visible
        visible = _without_itself(visible, at == query_at)[0]
        bias = aligned(masked_logits(visible, None, q.dtype))
        return attend(q, k, v, self.scale, bias, dropout=dropout_rate(self.dropout_module))

    def _chunked(
        self, q: Tensor, k: Tensor, v: Tensor, buckets: Tensor, codes: Tensor, causal: bool
    ) -> Tensor:
        """Outputs (B, H, T, D) from products within chunks, round by round.

        *buckets* and *codes* are (B, H, R, T).
        """
        place, token = self.hashing.layout(buckets)
        chunks = (*buckets.shape[:3], -1, self.hashing.chunk)  # (B, H, R, N, C)

        def at_places(x: Tensor, nothing: int = 0) -> Tensor:
            """Arrange *x* (B, H, T, X) in chunks (B, H, R, N, C, X)."""
            x = F.pad(x, (0, 0, 0, 1), value=nothing)
            index = token.flatten(2).unsqueeze(-1).expand(-1, -1, -1, x.size(-1))
            return x.gather(2, index).view(*chunks, x.size(-1))

        padding = self.hashing.buckets * CHUNKS
        query_codes = at_places(codes.transpose(2, 3), padding)  # (B, H, R, N, C, R)
        key_codes = _with_previous(query_codes)
        in_rounds, times = [], torch.zeros((), dtype=q.dtype, device=q.device)
        for i in range(self.hashing.rounds):
            query, key = query_codes[..., i].unsqueeze(-1), key_codes[..., i].unsqueeze(-2)
            in_round = self.hashing.visible(query, key)  # (B, H, R, N, C, 2C)
            in_rounds.append(in_round[:, :, i])
            times = times + in_round.to(q.dtype)
        query_at = token.view(chunks).unsqueeze(-1)
        key_at = _with_previous(query_at).transpose(-2, -1)
        visible = torch.stack(in_rounds, dim=2)
        visible = visible & (key_at <= query_at) if causal else visible
        visible, others = _without_itself(visible, key_at == query_at)
        products = torch.matmul(
            at_places(q) * self.scale, _with_previous(at_places(k)).transpose(-2, -1)
        )
        nothing = torch.finfo(q.dtype).min
        logits = (products - times.clamp(min=1).log()).masked_fill(~visible, nothing)
        sums = logits.logsumexp(dim=-1, keepdim=True)  # (B, H, R, N, C, 1)
        weights = (logits - sums).exp()
        # leave out rounds in which a token sees only itself, unless it does so in all rounds
        sums = sums.masked_fill(~others, nothing)
        rate = dropout_rate(self.dropout_module)
        weights = F.dropout(weights, rate) if rate > 0 else weights
        out = torch.matmul(weights, _with_previous(at_places(v)))
        both = torch.cat((out, sums), dim=-1).flatten(3, 4)  # (B, H, R, N·C, D + 1)
        both = F.pad(both, (0, 0, 0, 1))  # zeros for padding
        index = place.unsqueeze(-1).expand(-1, -1, -1, -1, both.size(-1))
        out, sums = both.gather(3, index).split((v.size(-1), 1), dim=-1)
        return (out * sums.softmax(dim=2)).sum(dim=2)


def _without_itself(visible: Tensor, itself: Tensor) -> Tuple[Tensor, Tensor]:
    """Hide each token from *itself* in the mask *visible* (..., T, S), unless it sees no other.

    Also returns (..., T, 1), True at queries that see other tokens.
    """
    others = (visible & ~itself).any(dim=-1, keepdim=True)
    return visible & ~(itself & others), others


def _with_previous(x: Tensor) -> Tensor:
    """Prepend the previous chunk to each chunk of *x* (B, H, R, N, C, X): (B, H, R, N, 2C, X)."""
    return torch.cat((x.roll(1, dims=3), x), dim=4)
