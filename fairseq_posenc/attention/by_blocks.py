"""Softmax attention of blocks of queries to the keys of their pattern, a few blocks at a time.

Longformer, Beltagy et al., arXiv 2004.05150; BigBird, Zaheer et al., arXiv 2007.14062.  The keys of
a segment of blocks are copied from the keys of all tokens, and copied again in the backward pass.
Only queries, keys and values are saved for it, as in fused softmax attention.
"""

from functools import partial
from typing import Any, Callable, Iterator, List, NamedTuple, Optional, Tuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from fairseq_posenc.attention import cpu_fused
from fairseq_posenc.attention.functional import attend, no_autocast
from fairseq_posenc.attention.recomputed import (
    concatenated,
    gradients_of,
    random_state,
    same_random_numbers,
)
from fairseq_posenc.attention.seen_keys import BlockSlice, KeyGradient, Seen
from fairseq_posenc.basics.tensors import AT_LEAST_FLOAT32
from fairseq_posenc.basics.versions import is_compiling
from fairseq_posenc.flags.options import Layer

#: The largest number of elements of a segment's queries on a CPU, 0.5 MB in float32; the keys
#: of larger segments are slower to read.
SEGMENT = 131_072
#: The largest number on a GPU, 8,192 tokens of 512 channels.  A smaller batch is one segment,
#: whose copies of keys are saved: copying them again would take more kernels.
SEGMENT_ON_GPU = 4_194_304

#: Queries (n, L, H, D), their keys and values (n, S, H, D), and the bias (n, 1|H, L, S).
SegmentInputs = Tuple[Tensor, Tensor, Tensor, Tensor]


class Replaced(NamedTuple):
    """Rows of the output that are computed elsewhere.

    Args:
        mask: True at these rows in the blocks with first tokens, (R, ·, L, 1, 1).
        rows: the output at these rows, (R, ·, L, H, D).
    """

    mask: Tensor
    rows: Tensor


class BlockAttention(NamedTuple):
    """Softmax attention of N blocks of queries in each of R sequences.

    Args:
        seen: the keys of every block.
        scale: factor on q·k.
        rate: probability of dropping an attention weight.
        empty_rows: False if no row of the bias hides all keys.
    """

    seen: Seen
    scale: float
    rate: float
    empty_rows: bool

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor, replaced: Optional[Replaced] = None
    ) -> Tensor:
        """The output (R, N, L, H, D).

        Args:
            q: queries (R, N, L, H, D).
            k: keys (R, N, L, H, D).
            v: values (R, N, L, H, D).
            bias: (R, N, 1|H, L, S) for the keys in the order of :meth:`.Seen.read`.
            replaced: rows that are computed elsewhere, or None.
        """
        slices = self.slices(q)
        if len(slices) > 1 and not (is_compiling() or torch.jit.is_tracing()):
            return ReadAgain.apply(self, slices, q, k, v, bias, *(replaced or (None, None)))
        parts = [self.attend(*inputs)[0] for _, inputs in self.segments(slices, q, k, v, bias)]
        out = concatenated(parts, 0).view(q.shape)
        if replaced is not None:
            out = out.clone()  # the gradient of attention needs the unchanged output
            self.replace(out, replaced)
        return out

    def slices(self, q: Tensor) -> List[BlockSlice]:
        """The index of each segment."""
        most = SEGMENT_ON_GPU if q.is_cuda else SEGMENT
        return self.seen.segments(q.size(0), q.size(1), most // q[0, 0].numel())

    def segments(
        self, slices: List[BlockSlice], q: Tensor, k: Tensor, v: Tensor, bias: Tensor
    ) -> Iterator[Tuple[BlockSlice, SegmentInputs]]:
        """The index of each segment, and its queries, keys, values and bias."""
        for index in slices:
            keys, values = (self.seen.read(x, index) for x in (k, v))
            yield index, (q[index].flatten(0, 1), keys, values, bias[index].flatten(0, 1))

    def replace(self, out: Tensor, replaced: Replaced) -> None:
        """Write the *replaced* rows into *out* (R, N, L, H, D)."""
        first = self.seen.first_blocks(out)
        first.copy_(torch.where(replaced.mask, replaced.rows, first))

    def attend(self, q: Tensor, keys: Tensor, values: Tensor, bias: Tensor) -> Tuple[Tensor]:
        """The output (n, L, H, D) of a segment."""
        q, keys, values = (x.transpose(1, 2) for x in (q, keys, values))
        out = attend(q, keys, values, self.scale, bias, False, self.rate, self.empty_rows)
        return (out.transpose(1, 2),)

    def attend_with_log_sums(
        self, q: Tensor, keys: Tensor, values: Tensor, bias: Tensor
    ) -> Tuple[Tensor, ...]:
        """The output (n, L, H, D) of a segment, and logarithms (n, L, H) of softmax's sums."""
        q, keys, values = (x.transpose(1, 2) for x in (q, keys, values))
        outputs = cpu_fused.attend_with_log_sums(q, keys, values, self.scale, bias)
        return tuple(x.transpose(1, 2) for x in outputs)

    def gradients(
        self, inputs: SegmentInputs, gradient: Tensor, out: Tensor, log_sums: Tensor
    ) -> List[Optional[Tensor]]:
        """Gradients of the queries, keys and values of a segment, and None for the bias.

        Args:
            inputs: queries, keys, values and bias.
            gradient: the gradient of the output, (n, L, H, D).
            out: the output.
            log_sums: the second result of :meth:`attend_with_log_sums`.
        """
        heads = [x.transpose(1, 2) for x in inputs[:3]]
        outputs = (out.transpose(1, 2), log_sums.transpose(1, 2))
        of_heads = cpu_fused.gradients_of_attention(
            gradient.transpose(1, 2), heads, self.scale, inputs[3], outputs
        )
        return [*(x.transpose(1, 2) for x in of_heads), None]


class ReadAgain(torch.autograd.Function):
    """Block attention that saves the keys of all tokens once, and no copies for blocks.

    The backward pass copies the keys of each segment again.  The fused kernel of a CPU returns log
    sums for its gradient, one for each query and head; on a GPU the output is computed again.
    """

    @staticmethod
    def forward(
        ctx: Layer,
        attention: BlockAttention,
        slices: List[BlockSlice],
        q: Tensor,
        k: Tensor,
        v: Tensor,
        bias: Tensor,
        mask: Optional[Tensor],
        rows: Optional[Tensor],
    ) -> Tensor:
        """The output (R, N, L, H, D); *mask* and *rows* as in :class:`Replaced`, or None."""
        ctx.attention, ctx.slices = attention, slices
        ctx.state = random_state(q.device) if attention.rate > 0 else None
        with_log_sums = cpu_fused.serves(q, bias, attention.rate)
        compute: Callable[..., Tuple[Tensor, ...]] = attention.attend
        # results allocated by segment would lie between freed keys and fragment the memory
        results = [q.new_empty(q.shape)]
        if with_log_sums:
            compute = attention.attend_with_log_sums
            results.append(q.new_empty(q.shape[:4], dtype=AT_LEAST_FLOAT32[q.dtype]))
        with no_autocast(q.device):
            for index, inputs in attention.segments(slices, q, k, v, bias):
                for result, part in zip(results, compute(*inputs)):
                    result[index] = part.unflatten(0, index.shape)
        if mask is not None and rows is not None:
            attention.replace(results[0], Replaced(mask, rows))
        ctx.save_for_backward(q, k, v, bias, mask, *(results if with_log_sums else (None, None)))
        return results[0]

    @staticmethod
    @once_differentiable
    def backward(ctx: Layer, gradient: Tensor) -> Tuple[Optional[Tensor], ...]:
        """Gradients of queries, keys, values, bias and the replaced rows."""
        q, k, v, bias, mask, out, log_sums = ctx.saved_tensors
        attention, needed = ctx.attention, ctx.needs_input_grad[2:6]
        hidden = of_rows = None
        if mask is not None:
            hidden = mask.new_zeros(*gradient.shape[:3], 1, 1)
            attention.seen.first_blocks(hidden).copy_(mask)
            of_rows = attention.seen.first_blocks(gradient).masked_fill(~mask, 0.0)
        of_keys = partial(KeyGradient, attention.seen)
        kinds: Tuple[Any, ...] = (GradientByBlock, of_keys, of_keys, GradientByBlock)
        totals: List[Any] = [
            kind(x) if each else None for kind, x, each in zip(kinds, (q, k, v, bias), needed)
        ]
        with no_autocast(q.device), same_random_numbers(ctx.state, q.device):
            for index, inputs in attention.segments(ctx.slices, q, k, v, bias):
                of_out = gradient[index]
                of_out = of_out if hidden is None else of_out.masked_fill(hidden[index], 0.0)
                of_out = of_out.flatten(0, 1)
                if log_sums is None:
                    gradients = gradients_of(attention.attend, inputs, needed, (of_out,))
                else:
                    outputs = (x[index].flatten(0, 1) for x in (out, log_sums))
                    gradients = attention.gradients(inputs, of_out, *outputs)
                for total, part in zip(totals, gradients):
                    if total is not None and part is not None:
                        total.add(part, index)
        return (None, None, *(x if x is None else x.total() for x in totals), None, of_rows)


class GradientByBlock:
    """The gradient (R, N, …) of queries or bias, each block of which is set once.

    Args:
        x: the queries or the bias.
    """

    def __init__(self, x: Tensor) -> None:
        self.sums = torch.empty_like(x)

    def add(self, gradient: Tensor, index: BlockSlice) -> None:
        """Set the *gradient* of the blocks at *index*."""
        self.sums[index] = gradient.unflatten(0, index.shape)

    def total(self) -> Tensor:
        """The gradient (R, N, …)."""
        return self.sums
