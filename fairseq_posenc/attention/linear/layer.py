"""Linear attention: linear in sequence length, with a cache of constant size; and its first map.

Katharopoulos et al. 2020, arXiv 2006.16236, whose feature map is elu(x) + 1.

Sums over keys are in prefix_sums.py, feature maps in feature_maps.py and favor.py.  On a CPU the
tokens are processed in segments: the features of a long sequence are large tensors, and
reallocating them each time takes longer than computing them.
"""

import functools
from dataclasses import dataclass, replace
from typing import Any, Dict, List, NamedTuple, Optional, Tuple, Type, Union

import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_posenc.attention.base import (
    Abilities,
    AttentionKernel,
    HeadSizes,
    MultiheadKernel,
    register_attention,
)
from fairseq_posenc.attention.cache import STATE, IncrementalState, counted
from fairseq_posenc.attention.functional import dropout_rate, no_autocast
from fairseq_posenc.attention.linear import prefix_sums
from fairseq_posenc.attention.linear.feature_maps import FeatureMap
from fairseq_posenc.attention.linear.prefix_sums import (
    Rotation,
    State,
    TransposedCast,
    attend_causally,
    attend_to_state,
    identity,
    narrow,
    summarize_keys,
)
from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.encodings import ENCODINGS, PositionEncoding
from fairseq_posenc.encodings.base import Encoding
from fairseq_posenc.flags.options import Options
from fairseq_posenc.flags.settings import setting

#: Features of a segment on a CPU, 2.4 MB: 256 tokens of 8 heads with 266 features.
SEGMENT = 600_000


def transforms_of_features() -> List[str]:
    """The encodings that linear attention can apply to features."""
    return [
        entry.name
        for entry in ENCODINGS.values()
        if entry.transform is not None and entry.transform.applies_to_features
    ]


@dataclass
class LinearFlags:
    """Flags of every linear attention."""

    linear_rotary: Optional[str] = setting(
        "features",
        "what rotary rotates in linear attention: features, in the numerator only (RoFormer Eq. "
        "11), or inputs, queries and keys before the feature map",
        role="model",
        choices=("features", "inputs"),
        needs={"position_encoding": transforms_of_features},
    )
    linear_epsilon: Optional[float] = setting(
        1e-9,
        "lower bound on the denominator in linear attention",
        role="model",
        at_least=torch.finfo(torch.float32).tiny,
        at_most=1.0,
    )


class Segment(NamedTuple):
    """Consecutive tokens.

    Args:
        q: queries (B, H, T, D).
        k: keys (B, H, T, D).
        v: values (B, H, T, D).
        hidden: (B, 1, T, 1), True at padding, or None.
        rotate: rotates their features.
        positions: (1|B, T), for feature maps that need them; else None.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    hidden: Optional[Tensor]
    rotate: Rotation
    positions: Optional[Tensor]


class LinearAttention(MultiheadKernel):
    """Linear self-attention, with the parameters and the interface of softmax attention.

    A subclass names its feature map and is registered with ``register_attention``.  Arguments are
    those of :class:`MultiheadKernel`.
    """

    abilities = Abilities(
        hooks=("transform",),
        linear_transforms=True,
        changes_values=True,
        takes_positions=True,
        causal_apart=True,
    )
    #: class of its feature map
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
    def check(cls, options: Options, encodings: List[Encoding]) -> None:
        """Refuse transforms that cannot be applied to features.

        Raises:
            UsageError: naming the flag.
        """
        for encoding in encodings if options.linear_rotary == "features" else ():
            if encoding.transform is None:
                continue
            if not cls.map_class.positive:
                raise UsageError(
                    f"--attention {options.attention}: its features are often 0, and the "
                    f"denominator with them, while the numerator of rotated features is not; with "
                    f"--position-encoding {encoding.name} give --linear-rotary inputs"
                )
            reason = encoding.transform.check_features(options)
            if reason is not None:
                raise UsageError(
                    f"{reason} (--attention {options.attention}); give --linear-rotary inputs, or "
                    "drop the flag"
                )

    @classmethod
    def abilities_for(cls, options: Options) -> Abilities:
        """A feature map applied after the rotation loses the distance."""
        keeps = options.linear_rotary == "features"
        return replace(cls.abilities, relative_after_rotation=keeps)

    @classmethod
    def head_sizes(cls, options: Options, side: str) -> HeadSizes:
        """Number of heads, and the size rotated: features or channels of a head."""
        heads = super().head_sizes(options, side)
        if options.linear_rotary == "inputs":
            return heads
        return heads._replace(channels=cls.map_class.size(heads.channels, options))

    def forward(
        self,
        x: Tensor,
        bias: Optional[Tensor] = None,
        causal: bool = False,
        table: Optional[Tensor] = None,
        query_positions: Optional[Tensor] = None,
        incremental_state: IncrementalState = None,
        **unused: Union[None, bool, Tensor],
    ) -> Tensor:
        """Attend from the new tokens to all so far; see :class:`.AttentionKernel`."""
        hidden = None if bias is None else bias[..., -x.size(1) :].transpose(-2, -1) < 0
        q, k, v = (self.by_head(proj(x)) for proj in (self.q_proj, self.k_proj, self.v_proj))
        dtype = v.dtype  # under autocast not that of x
        with no_autocast(x.device):
            wide = torch.promote_types(v.dtype, torch.float32)
            q, k, v = (TransposedCast.apply(t, wide) for t in (q, k, v))
            segments = self._segments(q, k, v, table, hidden, query_positions)
            if causal or incremental_state is not None:
                out = self._causal(segments, incremental_state)
            else:
                out = self._bidirectional(segments)
            joined = out[0] if len(out) == 1 else torch.cat(out, dim=2)
            joined = narrow(joined, dtype).flatten(2)  # (B, T, C)
        return self.out_proj(joined)

    def _segments(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        table: Optional[Tensor],
        hidden: Optional[Tensor],
        positions: Optional[Tensor],
    ) -> List[Segment]:
        """Split (B, H, T, D) tensors, their table, padding (B, 1, T, 1) and positions (1|B, T)."""
        transform = self.encoding.transform
        if table is not None and transform is not None and not self.rotates_features:
            # (B, H, T, D) -> (B, T, H, D), and back
            moved = transform(*(t.transpose(1, 2) for t in (q, k, v)), table)
            q, k, v = (t.transpose(1, 2) for t in moved)
            table = None
        length = size = q.size(2)
        if q.device.type == "cpu":  # the length is cut to whole chunks
            chunk = prefix_sums.CHUNK
            size = chunk * max(1, SEGMENT // (chunk * q.size(0) * q.size(1) * self.features))
        if length <= size:  # the gradient of splitting is a copy
            return [Segment(q, k, v, hidden, self._rotation(table), positions)]
        none = [None] * -(-length // size)
        parts = [t.split(size, dim=2) for t in (q, k, v)]
        masks = none if hidden is None else hidden.split(size, dim=2)
        tables = none if table is None else table.split(size, dim=1)
        rotations = [self._rotation(t) for t in tables]
        places = none if positions is None else positions.split(size, dim=1)
        return [Segment(*each) for each in zip(*parts, masks, rotations, places)]

    def _rotation(self, table: Optional[Tensor]) -> Rotation:
        """The rotation of features (B, H, T, M) by *table* (RoFormer Eq. 11)."""
        rotary: Any = self.encoding.transform

        def rotate(x: Tensor) -> Tensor:
            # (B, H, T, M) -> (B, T, H, M), and back
            return rotary.rotate(x.transpose(1, 2), table).transpose(1, 2)

        return identity if table is None else rotate

    def _bidirectional(self, segments: List[Segment]) -> List[Tensor]:
        """Outputs (B, H, T, D) of each segment: all keys are summarised, then attended to."""
        stabiliser = self.feature_map.stabiliser([(s.k, s.hidden) for s in segments])
        states = [summarize_keys(*self._keys(s, stabiliser), s.rotate) for s in segments]
        state = functools.reduce(State.plus, states)
        return [
            attend_to_state(self._queries(s), state, rotate=s.rotate, **self.normalisation)
            for s in segments
        ]

    def _causal(self, segments: List[Segment], incremental_state: IncrementalState) -> List[Tensor]:
        """Outputs (B, H, T, D) of each segment; each passes its state on to the next."""
        saved = self.get_incremental_state(incremental_state, STATE)
        state = State(saved["prev_products"], saved["prev_sums"]) if saved else None
        out = []
        for s in segments:
            k, v = self._keys(s, None)
            last = incremental_state is None and s is segments[-1]
            given = {**self.normalisation, "rotate": s.rotate, "last": last}
            part, state = attend_causally(self._queries(s), k, v, state, **given)
            out.append(part)
        if incremental_state is not None and state is not None:
            seen = self.cached_length(incremental_state) + sum(s.q.size(2) for s in segments)
            cache = {
                "prev_products": state.products,
                "prev_sums": state.sums,
                "prev_tokens": counted(state.sums, seen),
            }
            self.set_incremental_state(incremental_state, STATE, cache)
        return out

    def _queries(self, s: Segment) -> Tensor:
        return self.feature_map.queries(s.q.contiguous(), s.positions)

    def _keys(self, s: Segment, stabiliser: Optional[Tensor]) -> Tuple[Tensor, Tensor]:
        """ϕ of keys, 0 at padding, and values; dropout drops a key for all queries."""
        k = self.feature_map.keys(s.k.contiguous(), stabiliser, s.positions)
        k, v = k if s.hidden is None else k.masked_fill(s.hidden, 0.0), s.v.contiguous()
        rate = dropout_rate(self.dropout_module)
        return k, (v * F.dropout(torch.ones_like(v[..., :1]), rate) if rate > 0 else v)

    def place(self, index: int, first: AttentionKernel) -> None:
        """Give every layer different random features."""
        self.feature_map.set_layer_index(index)


class EluFeatures(FeatureMap):
    """φ(x) = ϕ(x) = elu(x) + 1 (Katharopoulos et al. Eq. 7)."""

    def queries(self, q: Tensor, positions: Optional[Tensor] = None) -> Tensor:
        """φ of queries (B, H, T, D)."""
        return F.elu(q).add_(1)

    def keys(
        self, k: Tensor, stabiliser: Optional[Tensor] = None, positions: Optional[Tensor] = None
    ) -> Tensor:
        """ϕ of keys (B, H, S, D)."""
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
