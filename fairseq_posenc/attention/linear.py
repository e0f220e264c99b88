"""Linear attention: sums over keys that do not depend on the query, so that length costs no square.

Katharopoulos et al. 2020, arXiv 2006.16236, and with rotary RoFormer Eq. 11:

    out_m = Σ_n (R_m φ(q_m))·(R_n ϕ(k_n)) v_n / Σ_n φ(q_m)·ϕ(k_n)
          = (R_m φ(q_m))ᵀ · Σ_n (R_n ϕ(k_n)) v_nᵀ / φ(q_m)ᵀ · Σ_n ϕ(k_n)

Positions are in the numerator alone: its weights may be negative, the denominator stays a sum of
terms that are not.  M is the number of features.
"""

import contextlib
from typing import Any, Callable, NamedTuple, Optional, Tuple

import torch
import torch.nn.functional as F
from fairseq.modules import MultiheadAttention as StockMultiheadAttention
from torch import Tensor

from fairseq_posenc.attention.feature_maps import FEATURE_MAPS
from fairseq_posenc.attention.functional import separate_masks
from fairseq_posenc.attention.multihead import (
    IncrementalState,
    attention_dropout,
    join_heads,
    split_heads,
)
from fairseq_posenc.encodings import PositionEncoding
from fairseq_posenc.errors import UsageError

Turn = Callable[[Tensor, Tensor], Tuple[Tensor, Tensor]]

#: Tokens of a chunk.  Within one, weights are computed; between them, sums are handed on.
CHUNK = 64


class State(NamedTuple):
    """All that a query needs of the keys and values before it.

    Args:
        products: Σ_n (R_n ϕ(k_n)) v_nᵀ, (B, H, M, D).
        sums: Σ_n ϕ(k_n), (B, H, M).
    """

    products: Tensor
    sums: Tensor


def linear_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    causal: bool,
    epsilon: float,
    per_feature: bool = False,
    turn: Optional[Turn] = None,
    state: Optional[State] = None,
    dropout: float = 0.0,
) -> Tuple[Tensor, State]:
    """Attention of features (RoFormer Eq. 10, and Eq. 11 with *turn*).

    Args:
        q: φ of the queries, (B, H, T, M), not negative.
        k: ϕ of the keys, (B, H, S, M), not negative, 0 at keys that nobody sees.
        v: values (B, H, S, D).
        causal: hide later keys; needs T = S.
        epsilon: the least value of a denominator.
        per_feature: divide each feature of the keys by its own sum over the keys a query sees.
        turn: rotates features (B, H, T, M) of queries and of keys in the numerator.
        state: what came before, if the sequence goes on; needs *causal*.
        dropout: probability of dropping a key, for all queries of a head alike.

    Returns:
        (B, H, T, D), zeros for a query that sees nothing; and the state for what follows.
    """
    ones = torch.ones_like(v[..., :1])
    if dropout > 0:
        v = v * F.dropout(ones, dropout)
    sum_up = sums_before if causal else sums_of_all
    products = None if state is None else state.products
    sums = None if state is None else state.sums.unsqueeze(-1)
    if per_feature:
        seen, last = _visible_sums(k, causal, sums)
        q = q / seen.clamp(min=epsilon)
        q, k = (q, k) if turn is None else turn(q, k)
        out, products = sum_up(q, k, v, products)
        return out, State(products, last)
    if turn is None:  # numerator and denominator at once
        if products is not None and sums is not None:
            products = torch.cat((products, sums), dim=-1)
        both, after = sum_up(q, k, torch.cat((v, ones), dim=-1), products)
        out, denominator = both[..., :-1], both[..., -1:]
        products, sums = after[..., :-1], after[..., -1:]
    else:
        denominator, sums = sum_up(q, k, ones, sums)
        out, products = sum_up(*turn(q, k), v, products)
    return out / denominator.clamp(min=epsilon), State(products, sums.squeeze(-1))


def sums_of_all(
    q: Tensor, k: Tensor, v: Tensor, start: Optional[Tensor] = None
) -> Tuple[Tensor, Tensor]:
    """q_m · Σ_n k_n v_nᵀ over all n, (B, H, T, D); and that sum, (B, H, M, D).

    Args:
        q: (B, H, T, M).
        k: (B, H, S, M).
        v: (B, H, S, D).
        start: (B, H, M, D), added to the sum, or None.
    """
    total = torch.matmul(k.transpose(-2, -1), v)
    total = total if start is None else start + total
    return torch.matmul(q, total), total


def sums_before(
    q: Tensor, k: Tensor, v: Tensor, start: Optional[Tensor] = None
) -> Tuple[Tensor, Tensor]:
    """q_m · Σ_n k_n v_nᵀ over n ≤ m, (B, H, T, D); and the sum over all n, (B, H, M, D).

    Arguments as for :func:`sums_of_all`, with S = T.  There is one (M, D) tensor for a chunk of
    tokens, not for a token, so that memory is linear in T with a small factor.
    """
    length = q.size(2)
    if length == 1:
        return sums_of_all(q, k, v, start)
    size = min(CHUNK, length)
    q, k, v = (_chunked(x, size) for x in (q, k, v))
    own = torch.matmul(k.transpose(-2, -1), v)  # (B, H, N, M, D)
    start = torch.zeros_like(own[:, :, 0]) if start is None else start
    before = torch.cat((start.unsqueeze(2), own[:, :, :-1]), dim=2).cumsum(dim=2)
    weights = torch.matmul(q, k.transpose(-2, -1)).tril()  # (B, H, N, L, L)
    out = torch.matmul(weights, v) + torch.matmul(q, before)
    return out.flatten(2, 3)[:, :, :length], before[:, :, -1] + own[:, :, -1]


def _chunked(x: Tensor, size: int) -> Tensor:
    """(B, H, T, M) -> (B, H, N, L, M) for N chunks of L tokens, zeros after the last."""
    chunks = -(-x.size(2) // size)
    gap = chunks * size - x.size(2)
    x = F.pad(x, (0, 0, 0, gap)) if gap else x
    return x.reshape(*x.shape[:2], chunks, size, -1)


def _visible_sums(k: Tensor, causal: bool, start: Optional[Tensor]) -> Tuple[Tensor, Tensor]:
    """Σ_n ϕ(k_n) over the keys each query sees, (B, H, 1|T, M), and over all, (B, H, M)."""
    if not causal:
        total = k.sum(dim=2, keepdim=True)
        return total, total.squeeze(2)
    sums = k.cumsum(dim=2)
    sums = sums if start is None else sums + start.transpose(-2, -1)
    return sums, sums[:, :, -1]


class LinearAttention(StockMultiheadAttention):
    """Self-attention by feature maps, with the parameters and the place of the usual one.

    Args:
        embed_dim: C.
        num_heads: H.
        encoding: what the stack's ``--position-encoding`` composed; its options choose the map.
        kwargs: passed to fairseq's attention (dropout, quantisation noise).
    """

    masks = staticmethod(separate_masks)

    def __init__(
        self, embed_dim: int, num_heads: int, encoding: PositionEncoding, **kwargs: Any
    ) -> None:
        super().__init__(embed_dim, num_heads, self_attention=True, **kwargs)
        self.encoding = encoding
        options = encoding.options
        self.name = str(options.attention)
        self.feature_map = FEATURE_MAPS[self.name](self.head_dim, options, encoding.stack.side)
        self.epsilon = float(options.linear_epsilon)
        self.turns_features = options.linear_rotary == "features"

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
    ) -> Tuple[Tensor, None]:
        """Attend from the new tokens to all tokens so far.

        Args:
            x: layer input for the new tokens, (T, B, C).
            bias: -inf at padded keys, (B, 1, 1, S), or None.
            causal: hide later keys.
            table: rotation of the new positions, or None.
            query_positions: not used; nor are *key_positions* and *distance_vectors*.
            incremental_state: fairseq's cache, here of constant size.
            need_weights: has to be False.

        Returns:
            output (T, B, C), and None in place of attention weights.

        Raises:
            UsageError: weights are asked for.
        """
        if need_weights:
            raise UsageError(
                f"--attention {self.name}: has no attention weights to return; use softmax"
            )
        hidden = None if bias is None else bias[..., -x.size(0) :].transpose(-2, -1) < 0
        q, k, v = (
            split_heads(proj(x), self.head_dim) for proj in (self.q_proj, self.k_proj, self.v_proj)
        )
        with _no_autocast(x.device):
            q, k, v = (t.to(torch.promote_types(t.dtype, torch.float32)) for t in (q, k, v))
            out = self._attend(q, k, v, table, hidden, causal, incremental_state)
        return self.out_proj(join_heads(_narrow(out, x.dtype))), None

    def _attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        table: Optional[Tensor],
        hidden: Optional[Tensor],
        causal: bool,
        incremental_state: IncrementalState,
    ) -> Tensor:
        """Outputs (B, H, T, D) of queries, keys and values (T, B, H, D), *hidden* (B, 1, T, 1)."""
        turn: Optional[Turn] = None
        if not self.turns_features:
            q, k, v = self.encoding.map(q, k, v, table)
        elif table is not None:
            turn = self._turn_with(table)
        # (T, B, H, D) -> (B, H, T, D), in this order in memory, too
        q, k, v = (t.permute(1, 2, 0, 3).contiguous() for t in (q, k, v))
        causal = causal or incremental_state is not None
        k = self.feature_map.keys(k, hidden, causal)
        k = k if hidden is None else k.masked_fill(hidden, 0.0)
        q = self.feature_map.queries(q)
        saved = self.get_incremental_state(incremental_state, "attn_state")
        state = State(saved["prev_products"], saved["prev_sums"]) if saved else None
        per_feature, dropout = self.feature_map.per_feature, attention_dropout(self)
        arguments = (causal, self.epsilon, per_feature, turn, state, dropout)
        out, state = linear_attention(q, k, v, *arguments)
        if incremental_state is not None:
            seen = self.cached_length(incremental_state) + q.size(2)
            cache = {
                "prev_products": state.products,
                "prev_sums": state.sums,
                "prev_tokens": v.new_empty(v.size(0), seen, 0),  # has a length and no memory
            }
            self.set_incremental_state(incremental_state, "attn_state", cache)
        return out

    def _turn_with(self, table: Tensor) -> Turn:
        """What rotates features (B, H, T, M) by *table*, as Eq. 11 does."""

        def turn(q: Tensor, k: Tensor) -> Tuple[Tensor, Tensor]:
            q, k = (t.permute(2, 0, 1, 3) for t in (q, k))  # (B, H, T, M) -> (T, B, H, M)
            q, k, _ = self.encoding.map(q, k, k, table)
            return q.permute(1, 2, 0, 3), k.permute(1, 2, 0, 3)

        return turn

    def extra_repr(self) -> str:
        """What ``print(model)`` says of this layer."""
        sizes = f"heads={self.num_heads}, head_dim={self.head_dim}"
        return f"attention={self.name}, encoding={self.encoding.name}, {sizes}"

    def cached_length(self, incremental_state: IncrementalState) -> int:
        """How many tokens of this layer's cache precede the new ones."""
        saved = self.get_incremental_state(incremental_state, "attn_state")
        return saved["prev_tokens"].size(1) if saved else 0


def _no_autocast(device: torch.device) -> Any:
    if device.type not in ("cpu", "cuda"):
        return contextlib.nullcontext()
    return torch.autocast(device.type, enabled=False)


def _narrow(x: Tensor, dtype: torch.dtype) -> Tensor:
    """*x* in *dtype*; what is beyond its range becomes its largest value.

    Rotated weights do not sum to one, and may be large where the denominator is small.
    """
    if dtype in (torch.float16, torch.bfloat16):
        most = torch.finfo(dtype).max
        x = x.clamp(-most, most)
    return x.to(dtype)
