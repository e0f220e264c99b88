"""Linear attention: the layer.  Its length costs no square, and its cache has a constant size.

What it computes is in prefix_sums.py, features in feature_maps.py.  On a CPU the tokens are taken
in segments: the features of a long sequence are large tensors, and to get the memory for those
anew and anew takes longer than to compute them.
"""

import contextlib
from typing import Any, List, NamedTuple, Optional, Tuple

import torch
import torch.nn.functional as F
from fairseq.modules import MultiheadAttention as StockMultiheadAttention
from torch import Tensor

from fairseq_posenc.attention import prefix_sums
from fairseq_posenc.attention.feature_maps import FEATURE_MAPS
from fairseq_posenc.attention.functional import separate_masks
from fairseq_posenc.attention.multihead import IncrementalState, attention_dropout, split_heads
from fairseq_posenc.attention.prefix_sums import (
    State,
    Turn,
    no_turn,
    nothing_seen,
    read,
    read_causally,
    state_of,
)
from fairseq_posenc.encodings import PositionEncoding
from fairseq_posenc.errors import UsageError

#: Features of a segment on a CPU, 2.4 MB: 256 tokens of 8 heads with 266 features.
SEGMENT = 600_000


class Segment(NamedTuple):
    """Consecutive tokens.

    Args:
        q: queries (B, H, T, D).
        k: keys, likewise.
        v: values, likewise.
        hidden: (B, 1, T, 1), True at padding, or None.
        turn: rotates their features.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    hidden: Optional[Tensor]
    turn: Turn


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
        self.features = self.feature_map.size(self.head_dim, options)
        self.how = (float(options.linear_epsilon), self.feature_map.per_feature)
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
        dtype = v.dtype  # under autocast not that of x
        with _no_autocast(x.device):
            q, k, v = (t.to(torch.promote_types(t.dtype, torch.float32)) for t in (q, k, v))
            segments = self._segments(q, k, v, table, hidden)
            if causal or incremental_state is not None:
                out = self._causal(segments, incremental_state)
            else:
                out = self._bidirectional(segments)
            # (B, H, T, D) -> (T, B, C)
            joined = torch.cat([part.permute(2, 0, 1, 3) for part in out]).flatten(2)
        return self.out_proj(_narrow(joined, dtype)), None

    def _segments(
        self, q: Tensor, k: Tensor, v: Tensor, table: Optional[Tensor], hidden: Optional[Tensor]
    ) -> List[Segment]:
        """Cut (T, B, H, D) tensors, their rotation and padding (B, 1, T, 1) into segments."""
        if not self.turns_features:
            q, k, v = self.encoding.map(q, k, v, table)
            table = None
        size = q.size(0)
        if q.device.type == "cpu":  # as many whole chunks as fit
            chunk = prefix_sums.CHUNK
            size = chunk * max(1, SEGMENT // (chunk * q.size(1) * q.size(2) * self.features))
        none = [None] * -(-q.size(0) // size)
        # (T, B, H, D) -> (B, H, T, D)
        parts = [t.permute(1, 2, 0, 3).split(size, dim=2) for t in (q, k, v)]
        masks = none if hidden is None else hidden.split(size, dim=2)
        turns = [self._turn_with(t) for t in (none if table is None else table.split(size))]
        return [Segment(*each) for each in zip(*parts, masks, turns)]

    def _turn_with(self, table: Optional[Tensor]) -> Turn:
        """What rotates features by *table*, as Eq. 11 does."""
        rotary: Any = self.encoding.query_key

        def turn(x: Tensor) -> Tensor:
            # (B, H, T, M) -> (T, B, H, M), and back
            return rotary.rotate(x.permute(2, 0, 1, 3), table).permute(1, 2, 0, 3)

        return no_turn if table is None else turn

    def _bidirectional(self, segments: List[Segment]) -> List[Tensor]:
        """Outputs (B, H, T, D) of each segment: all keys are summed up, then read."""
        stabiliser = self.feature_map.stabiliser([(s.k, s.hidden) for s in segments])
        state = nothing_seen(segments[0].v, self.features)
        for s in segments:
            state = state.plus(state_of(*self._keys(s, stabiliser), s.turn))
        return [read(self._queries(s), state, *self.how, s.turn) for s in segments]

    def _causal(self, segments: List[Segment], incremental_state: IncrementalState) -> List[Tensor]:
        """Outputs (B, H, T, D) of each segment, which hands its state on to the next."""
        saved = self.get_incremental_state(incremental_state, "attn_state")
        state = nothing_seen(segments[0].v, self.features)
        if saved:
            state = State(saved["prev_products"], saved["prev_sums"])
        out = []
        for s in segments:
            keys = self._keys(s, None)
            part, state = read_causally(self._queries(s), *keys, state, *self.how, s.turn)
            out.append(part)
        if incremental_state is not None:
            seen = self.cached_length(incremental_state) + sum(s.q.size(2) for s in segments)
            cache = {
                "prev_products": state.products,
                "prev_sums": state.sums,
                "prev_tokens": state.sums.new_empty(len(state.sums), seen, 0),  # length, no memory
            }
            self.set_incremental_state(incremental_state, "attn_state", cache)
        return out

    def _queries(self, s: Segment) -> Tensor:
        return self.feature_map.queries(s.q.contiguous())

    def _keys(self, s: Segment, stabiliser: Optional[Tensor]) -> Tuple[Tensor, Tensor]:
        """ϕ of keys, 0 at padding, and values, where dropout drops keys for all queries alike."""
        k, v = self.feature_map.keys(s.k.contiguous(), stabiliser), s.v.contiguous()
        k = k if s.hidden is None else k.masked_fill(s.hidden, 0.0)
        dropout = attention_dropout(self)
        return k, (v * F.dropout(torch.ones_like(v[..., :1]), dropout) if dropout > 0 else v)

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
