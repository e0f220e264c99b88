"""Linear attention: linear in sequence length, with a cache of constant size.

Katharopoulos et al. 2020, arXiv 2006.16236.  Sums over keys are in prefix_sums.py; the feature map
elu(x) + 1 is here, and FAVOR+ in favor.py.  Tokens are processed in segments, whose features are
small enough to stay in the processor's cache.  In large batches, the backward pass computes the
features again (segments.py).
"""

from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Tuple, Type

import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_posenc.attention.base import AttentionKernel, MultiheadKernel, register_attention
from fairseq_posenc.attention.cache import STATE, IncrementalState, counted
from fairseq_posenc.attention.functional import Batch, dropout_rate
from fairseq_posenc.attention.linear import prefix_sums
from fairseq_posenc.attention.linear.feature_maps import FeatureMap
from fairseq_posenc.attention.linear.prefix_sums import (
    KeySums,
    Rotation,
    TransposedCast,
    attend_causally,
    attend_to_state,
    feature_dtype,
    identity,
    narrow,
    summarize_keys,
    widen,
)
from fairseq_posenc.attention.linear.segments import (
    Recomputed,
    Segment,
    attend_by_segments,
    attend_to_next,
    split,
)
from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.tensors import AT_LEAST_FLOAT32, concatenated, no_autocast
from fairseq_posenc.basics.versions import is_compiling
from fairseq_posenc.encodings import ENCODINGS, Encoding, Places, PositionEncoding, Stack
from fairseq_posenc.flags.options import Options
from fairseq_posenc.flags.settings import setting

#: Largest number of features in a segment on a CPU, 2.4 MB: 256 tokens, 8 heads, 266 features.
SEGMENT = 600_000
#: The same if the backward pass computes features again, 0.6 MB: one segment should need little
#: memory compared with all tokens of a long text.
RECOMPUTED_SEGMENT = 150_000
#: Largest number of features in a segment on a GPU, 34 MB, so that few GPU kernels are started.
SEGMENT_ON_GPU = 8_388_608
#: Largest number of elements in the queries for which features are saved for the backward pass:
#: 8,192 tokens of 512 channels.  Computing features again takes a third more time, and saves most
#: of a layer's memory, which grows with the number of tokens.
KEPT = 4_194_304


def transforms_of_features() -> List[str]:
    """The names of the encodings whose transform linear attention can apply to features."""
    transforms = {name: entry.transform for name, entry in ENCODINGS.items()}
    return [name for name, each in transforms.items() if each and each.applies_to_features]


@dataclass
class LinearFlags:
    """Flags of all linear attentions."""

    linear_rotary: Optional[str] = setting(
        "features",
        "what the rotary encoding rotates in linear attention: features, but only in the "
        "numerator (RoFormer Eq. 11); or inputs, the queries and keys before the feature map",
        choices=("features", "inputs"),
        needs={"position_encoding": transforms_of_features},
    )
    linear_epsilon: Optional[float] = setting(
        1e-9,
        "lower bound on the denominator in linear attention",
        at_least=torch.finfo(torch.float32).tiny,
        at_most=1.0,
    )


class LinearAttention(MultiheadKernel):
    """Linear self-attention, with the parameters and the interface of softmax attention.

    A subclass sets :attr:`map_class` and is registered with ``register_attention``.  The arguments
    are those of :class:`MultiheadKernel`.
    """

    takes = frozenset({"linear", "values", "any_order"})
    static_cache = "sums"
    #: class of the feature map
    map_class: Type[FeatureMap]

    def __init__(
        self, embed_dim: int, num_heads: int, encoding: PositionEncoding, **kwargs: object
    ) -> None:
        super().__init__(embed_dim, num_heads, encoding, **kwargs)
        options = encoding.options
        self.feature_map = self.map_class(self.head_dim, options, encoding.stack.side)
        self.features = self.feature_map.size(self.head_dim, options)
        self.normalisation: Dict[str, Any] = {
            "epsilon": float(options.linear_epsilon),
            "per_feature": self.feature_map.per_feature,
        }
        self.rotates_features = options.linear_rotary == "features"

    @classmethod
    def check(cls, options: Options, encodings: List[Encoding], stacks: List[Stack]) -> None:
        """Refuse transforms that cannot be applied to features."""
        for encoding in encodings if options.linear_rotary == "features" else ():
            if encoding.transform is None:
                continue
            if not cls.map_class.is_positive(options):
                raise UsageError(
                    f"--attention {options.attention}: its features are often 0, so that the "
                    f"denominator can be 0 where the numerator with rotated features is not; with "
                    f"--position-encoding {encoding.name} give --linear-rotary inputs"
                )
            reason = encoding.transform.check_features(options)
            if reason is not None:
                raise UsageError(
                    f"{reason} (--attention {options.attention}); give --linear-rotary inputs, or "
                    "drop the flag"
                )

    @classmethod
    def relative_after_rotation(cls, options: Options) -> bool:
        """False if the feature map follows the rotation: products then depend on both positions."""
        return bool(options.linear_rotary == "features")

    @classmethod
    def heads(cls, options: Options, side: str) -> Tuple[int, int]:
        """H, and the number of features or channels of a head that encodings rotate."""
        number, channels = super().heads(options, side)
        if options.linear_rotary == "inputs":
            return number, channels
        return number, cls.map_class.size(channels, options)

    def prepare(self, batch: Batch, places: Places) -> Dict[str, Any]:
        """``hidden``, (B, T, 1, 1), True at padding, or None; and ``causal``, from *batch*.

        Also ``positions`` of the new tokens, (1|B, T), for feature maps that depend on them.
        """
        mask = batch.new_padding
        hidden = None if mask is None else mask[:, :, None, None]
        prepared = {"hidden": hidden, "causal": batch.causal}
        if self.map_class.takes_positions:
            prepared["positions"] = places.queries
        return prepared

    def forward(
        self,
        x: Tensor,
        keys: Optional[Tensor] = None,
        incremental_state: IncrementalState = None,
        **prepared: Any,
    ) -> Tensor:
        """Attend from the new tokens to all tokens so far; see :class:`.AttentionKernel`."""
        heads = self.joint_product(x) or (self.q_proj(x), self.k_proj(x), self.v_proj(x))
        q, k, v = map(self.by_head, heads)
        with no_autocast(x.device):
            transform, table = self.encoding.transform, prepared.get("table")
            if transform is not None and not self.rotates_features:
                q, k, v = transform(q, k, v, table)
                table = None
            hidden, positions = prepared["hidden"], prepared.get("positions")
            tokens = Segment(q, k, v, table, hidden, self._kept(v), positions)
            out = self._attend(tokens, prepared["causal"], incremental_state)
            out = out.flatten(2)  # (B, T, H, D) -> (B, T, C)
        return self.out_proj(out)

    def _kept(self, v: Tensor) -> Optional[Tensor]:
        """Dropout mask over keys, (B, T, H, 1), shared by all queries; None without dropout."""
        rate = dropout_rate(self.dropout_module)
        if not rate > 0:
            return None
        ones = v.new_ones(v.size(0), v.size(2), v.size(1), 1, dtype=AT_LEAST_FLOAT32[v.dtype])
        return F.dropout(ones, rate).transpose(1, 2)  # (B, H, T, 1) -> (B, T, H, 1)

    def _attend(self, tokens: Segment, causal: bool, incremental_state: IncrementalState) -> Tensor:
        batch, length, heads, _ = tokens.q.shape
        again = tokens.q.numel() > KEPT and torch.is_grad_enabled() and not is_compiling()
        again = again and not any(True for _ in self.feature_map.parameters())
        most = RECOMPUTED_SEGMENT if again else SEGMENT
        most = SEGMENT_ON_GPU if tokens.q.is_cuda else most
        chunk = prefix_sums.CHUNK  # segments are whole chunks
        size = chunk * max(1, most // (chunk * batch * heads * self.features))
        # splitting a tensor would take a copy in the backward pass
        segments = [tokens] if length <= size else split(tokens, length, size)
        if incremental_state is not None:
            return self._continued(segments, incremental_state)
        stabiliser = None
        if not causal:
            stabiliser = self.feature_map.stabiliser(tokens.k, tokens.hidden, size)
        if again:
            return Recomputed.apply(self, size, causal, stabiliser, *tokens)
        return concatenated(list(attend_by_segments(self, segments, causal, stabiliser)), 1)

    def _rotation(self, table: Optional[Tensor]) -> Rotation:
        """The function that rotates features (B, H, T, M) by *table* (RoFormer Eq. 11)."""
        rotary: Any = self.encoding.transform
        if table is None:
            return identity
        # (B, H, T, M) -> (B, T, H, M), and back
        return lambda x: rotary.rotate(x.transpose(1, 2), table).transpose(1, 2)

    def _continued(self, segments: List[Segment], incremental_state: IncrementalState) -> Tensor:
        """Causal outputs (B, T, H, D) of tokens that follow the cache; adds the tokens to it."""
        saved = self.get_incremental_state(incremental_state, STATE)
        state = KeySums(saved["prev_products"], saved["prev_sums"]) if saved else None
        parts = []
        for s in segments:
            out, state = self.advanced(s, state, False)
            parts.append(out)
        assert state is not None
        out = concatenated(parts, 1)
        seen = counted(state.sums, self.cached_length(incremental_state) + out.size(1))
        names = ("prev_products", "prev_sums", "prev_tokens")
        self.set_incremental_state(incremental_state, STATE, dict(zip(names, (*state, seen))))
        return out

    def summary(self, s: Segment, stabiliser: Optional[Tensor]) -> KeySums:
        """The sums over the keys of *s*."""
        return summarize_keys(*self._keys(s, stabiliser), self._rotation(s.table))

    def attended(self, s: Segment, state: KeySums) -> Tensor:
        """The outputs (B, T, H, D) of the queries of *s*, which see the keys of *state*."""
        settings = {**self.normalisation, "rotate": self._rotation(s.table)}
        return narrow(attend_to_state(self._queries(s), state, **settings), s.v.dtype)

    def advanced(
        self, s: Segment, state: Optional[KeySums], last: bool
    ) -> Tuple[Tensor, Optional[KeySums]]:
        """Causal outputs (B, T, H, D) of *s*, which follows *state*, and the state after *s*."""
        if s.q.size(1) == 1 and not (last or torch.is_grad_enabled()):
            epsilon, rotary = self.normalisation["epsilon"], self.encoding.transform
            out, state = attend_to_next(s, self.feature_map, rotary, state, epsilon)
            return narrow(out, s.v.dtype), state
        settings = {**self.normalisation, "rotate": self._rotation(s.table), "last": last}
        k, v = self._keys(s, None)
        out, state = attend_causally(self._queries(s), k, v, state, **settings)
        return narrow(out, s.v.dtype), state

    def _queries(self, s: Segment) -> Tensor:
        return self.feature_map.queries(widen(s.q), s.positions).to(feature_dtype(s.q))

    def _keys(self, s: Segment, stabiliser: Optional[Tensor]) -> Tuple[Tensor, Tensor]:
        """Features ϕ of the keys of *s*, 0 at padding, and the values of *s*."""
        k = self.feature_map.keys(widen(s.k), stabiliser, s.positions)
        k = k if s.hidden is None else k.masked_fill(s.hidden.transpose(1, 2), 0.0)
        dtype = feature_dtype(s.k)
        if s.kept is None:
            return k.to(dtype), TransposedCast.apply(s.v, dtype)
        return k.to(dtype), (widen(s.v) * s.kept.transpose(1, 2)).to(dtype)

    def set_layer(self, index: int, first: AttentionKernel) -> None:
        """Also pass *index* to the feature map, which draws different features in each layer."""
        super().set_layer(index, first)
        self.feature_map.set_layer_index(index)


class EluFeatures(FeatureMap):
    """φ(x) = ϕ(x) = elu(x) + 1 (Katharopoulos et al. Eq. 7)."""

    def queries(self, q: Tensor, positions: Optional[Tensor] = None) -> Tensor:
        """φ(q), (B, H, T, D)."""
        return F.elu(q).add_(1)

    def keys(
        self, k: Tensor, stabiliser: Optional[Tensor] = None, positions: Optional[Tensor] = None
    ) -> Tensor:
        """ϕ(k), (B, H, S, D)."""
        return F.elu(k).add_(1)


@register_attention(
    "elu",
    paper="Katharopoulos et al. 2020, arXiv 2006.16236",
    summary="linear, with features elu(x) + 1",
    flags=LinearFlags,
)
class EluAttention(LinearAttention):
    """Linear attention with features elu(x) + 1; arguments as for :class:`LinearAttention`."""

    map_class = EluFeatures
