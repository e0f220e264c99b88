"""Linear attention segment by segment, with features that the backward pass computes again.

Features are the largest tensors of a layer: for FAVOR+ about four times as large as its input.
Autograd would keep several of them for every token.  Here only queries, keys and values are kept,
as by fused softmax attention; the backward pass goes through the segments once more, and holds
the features of one at a time.  Sums over keys are not kept either: those of a causal layer, one
(D, M) tensor for each segment, would be as large as the queries.
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
from fairseq_posenc.attention.linear.prefix_sums import State
from fairseq_posenc.attention.recomputed import gradients_of
from fairseq_posenc.flags.options import Layer


class Segment(NamedTuple):
    """Consecutive tokens, which are the second dimension of every tensor.

    Args:
        q: queries (B, T, H, D), in the type of the model.
        k: keys (B, T, H, D).
        v: values (B, T, H, D).
        table: for the rotation of features, (1|B, T, …), or None.
        hidden: (B, T, 1, 1), True at padding, or None.
        kept: factors of the values, from dropout, (B, T, H, 1), or None.
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
        if self.q.size(1) <= size:  # the gradient of splitting is a copy
            return [self]
        return [Segment(*each) for each in zip(*self.columns(size, self))]

    def columns(self, size: int, tensors: Sequence[Optional[Tensor]]) -> List[List[Any]]:
        """Segments of *tensors* of these tokens, None for a tensor that is None."""
        none = [None] * -(-self.q.size(1) // size)
        return [none if x is None else list(x.split(size, dim=1)) for x in tensors]


FIELDS = len(Segment._fields)


class Steps(Protocol):
    """What a layer computes of one segment."""

    def summary(self, s: Segment, stabiliser: Optional[Tensor]) -> State:
        """The sums over the keys of *s*; *stabiliser* is that of the feature map."""

    def attended(self, s: Segment, state: State) -> Tensor:
        """The outputs (B, T, H, D) for the queries of *s*, which see the keys of *state*."""

    def advanced(
        self, s: Segment, state: Optional[State], last: bool
    ) -> Tuple[Tensor, Optional[State]]:
        """Causal outputs after the keys of *state*, and the state after *s* unless *last*."""


def total(states: Iterable[State]) -> State:
    """The state of the keys of all *states*."""
    return functools.reduce(State.plus, states)


def attend_everywhere(
    steps: Steps, segments: List[Segment], stabiliser: Optional[Tensor]
) -> Iterator[Tensor]:
    """Outputs (B, T, H, D) of each segment: all keys are summarised, then attended to."""
    state = total(steps.summary(s, stabiliser) for s in segments)
    return (steps.attended(s, state) for s in segments)


def attend_in_order(
    steps: Steps, segments: List[Segment], state: Optional[State] = None, last: bool = True
) -> Iterator[Tuple[Tensor, Optional[State]]]:
    """Causal outputs (B, T, H, D) of each segment, and the state after it, None at the *last*."""
    for s in segments:
        part, state = steps.advanced(s, state, last and s is segments[-1])
        yield part, state


def attend(
    steps: Steps, segments: List[Segment], causal: bool, stabiliser: Optional[Tensor]
) -> Iterator[Tensor]:
    """The outputs (B, T, H, D) of each segment, *causal* or not."""
    if causal:
        return (part for part, _ in attend_in_order(steps, segments))
    return attend_everywhere(steps, segments, stabiliser)


class Recomputed(torch.autograd.Function):
    """The outputs of all segments, of which nothing but the inputs is kept."""

    @staticmethod
    def forward(
        ctx: Layer,
        steps: Steps,
        size: int,
        causal: bool,
        stabiliser: Optional[Tensor],
        *tensors: Optional[Tensor],
    ) -> Tensor:
        """Outputs (B, T, H, D).

        Args:
            steps: the layer.
            size: tokens of a segment.
            causal: hide later keys.
            stabiliser: that of the feature map, (B, H, 1, 1), or None.
            tensors: the fields of :class:`Segment`, and the parameters of the feature map.
        """
        ctx.steps, ctx.size, ctx.causal = steps, size, causal
        ctx.save_for_backward(stabiliser, *tensors)
        tokens = Segment(*tensors[:FIELDS])  # type: ignore[arg-type]
        out = torch.empty_like(tokens.v, memory_format=torch.contiguous_format)
        parts = attend(steps, tokens.split(size), causal, stabiliser)
        for target, part in zip(out.split(size, dim=1), parts):  # a list would be twice as large
            target.copy_(part)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Layer, gradient: Tensor) -> Tuple[Optional[Tensor], ...]:
        """Gradients of the stabiliser, of the tokens and of the parameters."""
        stabiliser, *tensors = ctx.saved_tensors
        into, *sums = [
            torch.zeros_like(x) if needed else None
            for x, needed in zip(ctx.saved_tensors, ctx.needs_input_grad[3:])
        ]
        tokens = Segment(*tensors[:FIELDS])
        columns = tokens.columns(ctx.size, [*tokens, *sums[:FIELDS], gradient])
        parameters = list(zip(tensors[FIELDS:], sums[FIELDS:]))
        parts = [_Part(ctx.steps, each, parameters) for each in zip(*columns)]
        with no_autocast(gradient.device):
            if ctx.causal:
                _differentiate_in_order(parts)
            else:
                _differentiate_everywhere(parts, stabiliser, into)
        return (None, None, None, into, *sums)


class _Part:
    """A segment of the backward pass.

    Args:
        steps: the layer.
        tensors: the fields of :class:`Segment`, tensors that their gradients are added to or None,
            and the gradient of the output (B, T, H, D).
        parameters: parameters, each with the tensor that its gradient is added to, or None.
    """

    def __init__(
        self,
        steps: Steps,
        tensors: Sequence[Any],
        parameters: List[Tuple[Tensor, Optional[Tensor]]],
    ) -> None:
        self.steps, self.tokens, self.gradient = steps, Segment(*tensors[:FIELDS]), tensors[-1]
        self._sums, self._parameters = tensors[FIELDS:-1], parameters

    def summary(self, stabiliser: Optional[Tensor]) -> State:
        """The sums over its keys, without a graph."""
        return self.steps.summary(self.tokens, stabiliser)

    def differentiate(
        self,
        compute: Callable[..., Sequence[Optional[Tensor]]],
        gradients: Sequence[Tensor],
        given: Sequence[Tensor] = (),
        into: Sequence[Optional[Tensor]] = (),
    ) -> None:
        """Compute something, and add its gradients to those of all that it depends on.

        Args:
            compute: a function of the tokens and of what is *given*.
            gradients: the gradients of the results; a further result is not differentiated.
            given: further arguments of *compute*.
            into: for each *given*, the tensor that its gradient is added to, or None.
        """
        sums = [*self._sums, *into]
        parameters = [(x, own) for x, own in self._parameters if own is not None]
        found = gradients_of(
            lambda *tensors: compute(Segment(*tensors[:FIELDS]), *tensors[FIELDS:]),
            [*self.tokens, *given],
            [each is not None for each in sums],
            gradients,
            [x for x, _ in parameters],
        )
        for each, target in zip(found, [*sums, *(own for _, own in parameters)]):
            if each is not None and target is not None:
                target.add_(each)


def _differentiate_everywhere(
    parts: List[_Part], stabiliser: Optional[Tensor], into: Optional[Tensor]
) -> None:
    """Add the gradients of :func:`attend_everywhere`; *into* is that of the stabiliser."""
    state = total(part.summary(stabiliser) for part in parts)
    of_state = State(*map(torch.zeros_like, state))
    shared = () if stabiliser is None else (stabiliser,)
    for part in parts:
        attended = functools.partial(_attended, part.steps)
        part.differentiate(attended, (part.gradient,), state, of_state)
    for part in parts:  # the gradient of the state is complete
        summary = functools.partial(_summary, part.steps)
        part.differentiate(summary, of_state, shared, (into,) * len(shared))


def _differentiate_in_order(parts: List[_Part]) -> None:
    """Add the gradients of :func:`attend_in_order`, from the last segment to the first.

    The states before all segments would be as large as the queries.  Those before groups of √N of
    the N segments are kept; those within a group are computed again.
    """
    size = math.isqrt(len(parts))
    groups = [parts[first : first + size] for first in range(0, len(parts), size)]
    starts: List[Optional[State]] = [None]
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
                functools.partial(_advanced, part.steps, not after),
                (part.gradient, *after),
                before or (),
                of_state,
            )
            after = of_state


def _after(before: Optional[State], part: _Part) -> State:
    """The state after *part*, from the state *before* that part."""
    own = part.summary(None)
    return own if before is None else before.plus(own)


def _attended(steps: Steps, s: Segment, *state: Tensor) -> Tuple[Tensor]:
    return (steps.attended(s, State(*state)),)


def _summary(steps: Steps, s: Segment, stabiliser: Optional[Tensor] = None) -> State:
    return steps.summary(s, stabiliser)


def _advanced(
    steps: Steps, last: bool, s: Segment, *before: Tensor
) -> Tuple[Optional[Tensor], ...]:
    """The causal outputs of a segment and the state after it, as one tuple."""
    out, state = steps.advanced(s, State(*before) if before else None, last)
    return (out, *(state or ()))
