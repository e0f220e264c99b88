"""Linear attention of segments of tokens, which the backward pass can compute again.

Features are the largest tensors of a layer: with FAVOR+, about four times as large as the layer's
input.  Autograd would save several such tensors.  Here only queries, keys and values are saved, as
in fused softmax attention; the backward pass recomputes the segments, and holds the features of one
segment at a time.  Sums over keys are not saved either: in a causal layer, one (D, M) tensor for
each segment would take as much memory as the queries.
"""

import functools
import math
from typing import Any, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from fairseq_posenc.attention.linear.feature_maps import FeatureMap
from fairseq_posenc.attention.linear.prefix_sums import KeySums
from fairseq_posenc.basics.tensors import AT_LEAST_FLOAT32, no_autocast, view_as_stack
from fairseq_posenc.flags.options import Layer


class Segment(NamedTuple):
    """Consecutive tokens, in the second dimension of every tensor."""

    q: Tensor  # queries (B, T, H, D), in the type of the model
    k: Tensor  # keys (B, T, H, D)
    v: Tensor  # values (B, T, H, D)
    table: Optional[Tensor] = None  # table of the rotation of features, (1|B, T, …), or None
    hidden: Optional[Tensor] = None  # (B, T, 1, 1), True at padding, or None
    kept: Optional[Tensor] = None  # dropout mask of the keys, (B, T, H, 1), or None
    positions: Optional[Tensor] = None  # (1|B, T), for feature maps that need them, or None


def split(tensors: Sequence[Optional[Tensor]], length: int, size: int) -> List[Segment]:
    """Split *tensors*, the fields of one :class:`Segment`, into segments of *size* tokens."""
    none = [None] * -(-length // size)
    columns = [none if x is None else x.split(size, dim=1) for x in tensors]
    return [Segment(*each) for each in zip(*columns)]


def attend_by_segments(
    layer: Layer, segments: List[Segment], causal: bool, stabiliser: Optional[Tensor]
) -> Iterator[Tensor]:
    """The outputs (B, T, H, D) of each segment.

    *layer* has the methods ``summary``, ``attended`` and ``advanced``; *stabiliser* is the result
    of :meth:`.FeatureMap.stabiliser`, (B, H, 1, 1) or None.
    """
    if causal:
        state = None
        for s in segments:
            out, state = layer.advanced(s, state, s is segments[-1])
            yield out
    else:
        state = functools.reduce(KeySums.plus, (layer.summary(s, stabiliser) for s in segments))
        for s in segments:
            yield layer.attended(s, state)


def attend_to_next(
    token: Segment, features: FeatureMap, rotary: Any, state: Optional[KeySums], epsilon: float
) -> Tuple[Tensor, KeySums]:
    """The output (B, H, 1, D) of one token, in float32 or wider, and the state after it.

    RoFormer Eq. 11 for the last query m, which also sees the key of its own token:

        Σ_{n≤m} v_n (R_n ϕ(k_n))ᵀ = Σ_{n<m} v_n (R_n ϕ(k_n))ᵀ + v_m (R_m ϕ(k_m))ᵀ

    On a GPU, an operation on one token takes longer to start than to run, so each operation
    processes the query and the key together.
    """
    parts, table, hidden, kept = (token.q, token.k, token.v), token.table, token.hidden, token.kept
    whole = view_as_stack(parts)
    whole = torch.stack(parts) if whole is None else whole
    # (3, B, 1, H, D) -> (3, B, H, 1, D), dense
    whole = whole.transpose(2, 3).to(AT_LEAST_FLOAT32[token.v.dtype]).contiguous()
    q, k, v = whole.unbind()
    q, k = features.of_token(q, k, token.positions)  # (B, H, 1, M)
    k = k if hidden is None else k.masked_fill(hidden, 0.0)
    v = v if kept is None else v * kept.transpose(1, 2)
    sums = k.squeeze(2) if state is None else state.sums + k.squeeze(2)
    if features.per_feature:
        q = q / sums.unsqueeze(2).clamp(min=epsilon)
    rotated_q, rotated_k = q, k
    if table is not None:
        heads_last = (x.transpose(1, 2) for x in (q, k, k))
        rotated_q, rotated_k = (x.transpose(1, 2) for x in rotary(*heads_last, table)[:2])
    v = v.transpose(-2, -1)  # (B, H, D, 1)
    products = v * rotated_k if state is None else torch.addcmul(state.products, v, rotated_k)
    out = torch.matmul(rotated_q, products.transpose(-2, -1))
    if not features.per_feature:
        out = out / F.threshold(torch.matmul(q, sums.unsqueeze(-1)), epsilon, epsilon)
    return out, KeySums(products, sums)


def leaf(x: Tensor, gradient: Optional[Tensor]) -> Tensor:
    """*x*, detached; :func:`differentiate` adds its gradient to *gradient* unless that is None."""
    x = x.detach()
    if gradient is not None:
        x.requires_grad_().grad = gradient
    return x


def differentiate(outputs: Sequence[Tensor], gradients: Sequence[Optional[Tensor]]) -> None:
    """Add the gradients of *outputs* to the gradients of the leaves they were computed from.

    >>> x, total = torch.tensor([3.0]), torch.ones(1)
    >>> differentiate([leaf(x, total) ** 2], [torch.ones(1)])
    >>> total
    tensor([7.])

    *gradients* are for the outputs in order, and may be fewer.  Outputs without a gradient, and
    outputs that require none, are skipped.
    """
    pairs = [pair for pair in zip(outputs, gradients) if pair[0].requires_grad]
    if pairs:
        torch.autograd.backward([x for x, _ in pairs], [gradient for _, gradient in pairs])


class Recomputed(torch.autograd.Function):
    """The outputs of all segments; only the inputs are saved for the backward pass."""

    @staticmethod
    def forward(
        ctx: Layer,
        layer: Layer,
        size: int,
        causal: bool,
        stabiliser: Optional[Tensor],
        *tensors: Optional[Tensor],
    ) -> Tensor:
        """Outputs (B, T, H, D) of a :class:`Segment` of *tensors*, *size* tokens at a time."""
        ctx.layer, ctx.size, ctx.causal = layer, size, causal
        ctx.save_for_backward(stabiliser, *tensors)
        tokens = Segment(*tensors)  # type: ignore[arg-type]
        out = torch.empty_like(tokens.v, memory_format=torch.contiguous_format)
        segments = split(tokens, out.size(1), size)
        # a list of outputs would double the memory
        for target, part in zip(
            out.split(size, dim=1), attend_by_segments(layer, segments, causal, stabiliser)
        ):
            target.copy_(part)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Layer, gradient: Tensor) -> Tuple[Optional[Tensor], ...]:
        """Gradients of *stabiliser* and *tensors*."""
        stabiliser, *tensors = ctx.saved_tensors
        into, *sums = [
            torch.zeros_like(x) if needed else None
            for x, needed in zip(ctx.saved_tensors, ctx.needs_input_grad[3:])
        ]
        length = gradient.size(1)
        parts: List[Any] = [
            Segment(*(x if x is None else leaf(x, each) for x, each in zip(s, totals)))  # type: ignore[arg-type]
            for s, totals in zip(split(tensors, length, ctx.size), split(sums, length, ctx.size))
        ]
        gradients = gradient.split(ctx.size, dim=1)
        with no_autocast(gradient.device):
            if ctx.causal:
                _differentiate_in_order(ctx.layer, list(zip(parts, gradients)))
            else:
                stabiliser = stabiliser if into is None else leaf(stabiliser, into)
                _differentiate_everywhere(ctx.layer, parts, gradients, stabiliser)
        return (None, None, None, into, *sums)


def _with_gradient(state: Optional[KeySums]) -> Optional[KeySums]:
    """The *state* as leaves whose gradients begin as 0."""
    return state if state is None else KeySums(*(leaf(x, torch.zeros_like(x)) for x in state))


def _differentiate_everywhere(
    layer: Layer, parts: List[Segment], gradients: Sequence[Tensor], stabiliser: Optional[Tensor]
) -> None:
    """Add the gradients of bidirectional attention to the leaves in *parts*."""
    sums = functools.reduce(KeySums.plus, (layer.summary(s, stabiliser) for s in parts))
    state = _with_gradient(sums)
    assert state is not None
    for s, gradient in zip(parts, gradients):
        with torch.enable_grad():
            out = layer.attended(s, state)
        differentiate((out,), (gradient,))
    for s in parts:  # the gradient of the state is complete now
        with torch.enable_grad():
            summary = layer.summary(s, stabiliser)
        differentiate(summary, [x.grad for x in state if x.grad is not None])


def _differentiate_in_order(layer: Layer, parts: List[Tuple[Segment, Tensor]]) -> None:
    """Add the gradients of causal attention to the leaves in *parts*, last segment first.

    The states before all N segments would take as much memory as the queries.  Only the states
    before each group of √N segments are saved; the states within a group are recomputed.
    """

    def after_segment(state: Optional[KeySums], part: Tuple[Segment, Tensor]) -> KeySums:
        of_part: KeySums = layer.summary(part[0], None)
        return of_part if state is None else state.plus(of_part)

    size = math.isqrt(len(parts))
    groups = [parts[first : first + size] for first in range(0, len(parts), size)]
    starts: List[Optional[KeySums]] = [None]
    for group in groups[:-1]:
        starts.append(functools.reduce(after_segment, group, starts[-1]))
    of_after: Tuple[Optional[Tensor], ...] = ()  # gradients of the state after a segment
    for group in reversed(groups):
        states = [starts.pop()]
        for part in group[:-1]:
            states.append(after_segment(states[-1], part))
        for s, gradient in reversed(group):
            before = _with_gradient(states.pop())
            with torch.enable_grad():
                out, after = layer.advanced(s, before, not of_after)
            differentiate((out, *(after or ())), (gradient, *of_after))
            of_after = tuple(x.grad for x in before or ())
