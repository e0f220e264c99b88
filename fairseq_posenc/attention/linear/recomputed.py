"""Linear attention by segments, whose features are recomputed in the backward pass.

Features are the largest tensors of a layer: for FAVOR+ about four times as large as its input.
Autograd would save several of them for every token.  Here only queries, keys and values are saved,
as in fused softmax attention; the backward pass recomputes the segments, and holds the features of
one at a time.  Sums over keys are not saved either: in a causal layer, one (D, M) tensor for each
segment would take as much memory as the queries.
"""

import functools
import math
from typing import (
    Any,
    Callable,
    Iterable,
    Iterator,
    List,
    NamedTuple,
    Optional,
    Protocol,
    Sequence,
    Tuple,
)

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from fairseq_posenc.attention.functional import no_autocast
from fairseq_posenc.attention.linear.prefix_sums import KeySums
from fairseq_posenc.attention.recomputed import gradients_of
from fairseq_posenc.flags.options import Layer


class Segment(NamedTuple):
    """Consecutive tokens, in the second dimension of every tensor.

    Args:
        q: queries (B, T, H, D), in the type of the model.
        k: keys (B, T, H, D).
        v: values (B, T, H, D).
        table: table of the rotation of features, (1|B, T, …), or None.
        hidden: (B, T, 1, 1), True at padding, or None.
        kept: dropout mask of the keys, (B, T, H, 1), or None.
        positions: (1|B, T), for feature maps that need them, or None.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    table: Optional[Tensor] = None
    hidden: Optional[Tensor] = None
    kept: Optional[Tensor] = None
    positions: Optional[Tensor] = None

    def split(self, size: int) -> List["Segment"]:
        """Segments of *size* tokens; the last may be shorter."""
        if self.q.size(1) <= size:  # a split would take a copy in the backward pass
            return [self]
        return [Segment(*each) for each in zip(*self.columns(size, self))]

    def columns(self, size: int, tensors: Sequence[Optional[Tensor]]) -> List[List[Any]]:
        """*tensors* with a row for each of these tokens, split into segments; None stays None."""
        none = [None] * -(-self.q.size(1) // size)
        return [none if x is None else list(x.split(size, dim=1)) for x in tensors]


FIELDS = len(Segment._fields)


class SegmentLayer(Protocol):
    """A layer, as functions of one segment."""

    def summary(self, s: Segment, stabiliser: Optional[Tensor]) -> KeySums:
        """The sums over the keys of *s*; *stabiliser* as in :class:`.FeatureMap`."""

    def attended(self, s: Segment, state: KeySums) -> Tensor:
        """The outputs (B, T, H, D) for the queries of *s*, which see the keys of *state*."""

    def advanced(
        self, s: Segment, state: Optional[KeySums], last: bool
    ) -> Tuple[Tensor, Optional[KeySums]]:
        """Causal outputs after the keys of *state*, and the state after *s* unless *last*."""


def total(states: Iterable[KeySums]) -> KeySums:
    """The sum of all *states*."""
    return functools.reduce(KeySums.plus, states)


def attend_everywhere(
    layer: SegmentLayer, segments: List[Segment], stabiliser: Optional[Tensor]
) -> Iterator[Tensor]:
    """Outputs (B, T, H, D) of each segment: all keys are summarised, then attended to."""
    state = total(layer.summary(s, stabiliser) for s in segments)
    return (layer.attended(s, state) for s in segments)


def attend_in_order(
    layer: SegmentLayer, segments: List[Segment], state: Optional[KeySums] = None, last: bool = True
) -> Iterator[Tuple[Tensor, Optional[KeySums]]]:
    """Causal outputs (B, T, H, D) of each segment, and the state after it, None at the *last*."""
    for s in segments:
        part, state = layer.advanced(s, state, last and s is segments[-1])
        yield part, state


def attend_by_segments(
    layer: SegmentLayer, segments: List[Segment], causal: bool, stabiliser: Optional[Tensor]
) -> Iterator[Tensor]:
    """The outputs (B, T, H, D) of each segment, *causal* or not."""
    if causal:
        return (part for part, _ in attend_in_order(layer, segments))
    return attend_everywhere(layer, segments, stabiliser)


class Recomputed(torch.autograd.Function):
    """The outputs of all segments; only the inputs are saved for the backward pass."""

    @staticmethod
    def forward(
        ctx: Layer,
        layer: SegmentLayer,
        size: int,
        causal: bool,
        stabiliser: Optional[Tensor],
        *tensors: Optional[Tensor],
    ) -> Tensor:
        """Outputs (B, T, H, D).

        Args:
            layer: the layer.
            size: tokens of a segment.
            causal: hide later keys.
            stabiliser: that of the feature map, (B, H, 1, 1), or None.
            tensors: the fields of :class:`Segment`, and the parameters of the feature map.
        """
        ctx.layer, ctx.size, ctx.causal = layer, size, causal
        ctx.save_for_backward(stabiliser, *tensors)
        tokens = Segment(*tensors[:FIELDS])  # type: ignore[arg-type]
        out = torch.empty_like(tokens.v, memory_format=torch.contiguous_format)
        parts = attend_by_segments(layer, tokens.split(size), causal, stabiliser)
        # a list of outputs would double the memory
        for target, part in zip(out.split(size, dim=1), parts):
            target.copy_(part)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Layer, gradient: Tensor) -> Tuple[Optional[Tensor], ...]:
        """Gradients of the stabiliser, the tokens and the parameters."""
        stabiliser, *tensors = ctx.saved_tensors
        into, *sums = [
            torch.zeros_like(x) if needed else None
            for x, needed in zip(ctx.saved_tensors, ctx.needs_input_grad[3:])
        ]
        tokens = Segment(*tensors[:FIELDS])
        columns = tokens.columns(ctx.size, [*tokens, *sums[:FIELDS], gradient])
        parameters = list(zip(tensors[FIELDS:], sums[FIELDS:]))
        parts = [_Part(ctx.layer, each, parameters) for each in zip(*columns)]
        with no_autocast(gradient.device):
            if ctx.causal:
                _differentiate_in_order(parts)
            else:
                _differentiate_everywhere(parts, stabiliser, into)
        return (None, None, None, into, *sums)


class _Part:
    """A segment of the backward pass.

    Args:
        layer: the layer.
        tensors: the fields of :class:`Segment`; for each, the tensor that its gradient is added to,
            or None; and the gradient of the output (B, T, H, D).
        parameters: parameters, each with the tensor that its gradient is added to, or None.
    """

    def __init__(
        self,
        layer: SegmentLayer,
        tensors: Sequence[Any],
        parameters: List[Tuple[Tensor, Optional[Tensor]]],
    ) -> None:
        self.layer, self.tokens, self.gradient = layer, Segment(*tensors[:FIELDS]), tensors[-1]
        self._sums, self._parameters = tensors[FIELDS:-1], parameters

    def summary(self, stabiliser: Optional[Tensor]) -> KeySums:
        """The sums over the keys, without a graph."""
        return self.layer.summary(self.tokens, stabiliser)

    def differentiate(
        self,
        compute: Callable[..., Sequence[Optional[Tensor]]],
        gradients: Sequence[Tensor],
        further: Sequence[Tensor] = (),
        into: Sequence[Optional[Tensor]] = (),
    ) -> None:
        """Run *compute*, and add the gradients of everything that it depends on.

        Args:
            compute: a function of the tokens and of *further* arguments.
            gradients: the gradients of the results; results beyond them are not differentiated.
            further: further arguments of *compute*.
            into: for each of them, the tensor that its gradient is added to, or None.
        """
        sums = [*self._sums, *into]
        parameters = [(x, total) for x, total in self._parameters if total is not None]
        results = gradients_of(
            lambda *tensors: compute(Segment(*tensors[:FIELDS]), *tensors[FIELDS:]),
            [*self.tokens, *further],
            [each is not None for each in sums],
            gradients,
            [x for x, _ in parameters],
        )
        for each, target in zip(results, [*sums, *(total for _, total in parameters)]):
            if each is not None and target is not None:
                target.add_(each)


def _differentiate_everywhere(
    parts: List[_Part], stabiliser: Optional[Tensor], into: Optional[Tensor]
) -> None:
    """Add the gradients of :func:`attend_everywhere`; *into* takes the stabiliser's."""
    state = total(part.summary(stabiliser) for part in parts)
    of_state = KeySums(*map(torch.zeros_like, state))
    shared = () if stabiliser is None else (stabiliser,)
    for part in parts:
        attended = functools.partial(_attended, part.layer)
        part.differentiate(attended, (part.gradient,), state, of_state)
    for part in parts:  # the gradient of the state is complete
        summary = functools.partial(_summary, part.layer)
        part.differentiate(summary, of_state, shared, (into,) * len(shared))


def _differentiate_in_order(parts: List[_Part]) -> None:
    """Add the gradients of :func:`attend_in_order`, from the last segment to the first.

    The states before all N segments would take as much memory as the queries.  Only the states
    before each group of √N segments are saved; those within a group are recomputed.
    """
    size = math.isqrt(len(parts))
    groups = [parts[first : first + size] for first in range(0, len(parts), size)]
    starts: List[Optional[KeySums]] = [None]
    for group in groups[:-1]:
        starts.append(functools.reduce(_after, group, starts[-1]))
    after: Tuple[Tensor, ...] = ()
    for group in reversed(groups):
        states = [starts.pop()]
        for part in group[:-1]:
            states.append(_after(states[-1], part))
        for part in reversed(group):
            before = states.pop()
            of_state = () if before is None else tuple(map(torch.zeros_like, before))
            part.differentiate(
                functools.partial(_advanced, part.layer, not after),
                (part.gradient, *after),
                before or (),
                of_state,
            )
            after = of_state


def _after(before: Optional[KeySums], part: _Part) -> KeySums:
    """The state after *part*, from the state *before* it."""
    of_part = part.summary(None)
    return of_part if before is None else before.plus(of_part)


def _attended(layer: SegmentLayer, s: Segment, *state: Tensor) -> Tuple[Tensor]:
    return (layer.attended(s, KeySums(*state)),)


def _summary(layer: SegmentLayer, s: Segment, stabiliser: Optional[Tensor] = None) -> KeySums:
    return layer.summary(s, stabiliser)


def _advanced(
    layer: SegmentLayer, last: bool, s: Segment, *before: Tensor
) -> Tuple[Optional[Tensor], ...]:
    """The causal outputs of a segment and the state after it, as one tuple."""
    out, state = layer.advanced(s, KeySums(*before) if before else None, last)
    return (out, *(state or ()))
