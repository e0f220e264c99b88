"""Softmax attention of blocks of queries to the keys of their pattern, a few blocks at a time.

Longformer, Beltagy et al., arXiv 2004.05150; BigBird, Zaheer et al., arXiv 2007.14062.  The keys of
a segment of blocks are read from the keys of all tokens, and read again in the backward pass.
Queries, keys and values are kept for that pass, as by fused softmax attention.
"""

from typing import Any, Iterator, List, NamedTuple, Optional, Tuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from fairseq_posenc.attention import cpu_fused
from fairseq_posenc.attention.functional import attend, no_autocast
from fairseq_posenc.attention.recomputed import (
    gradients_of,
    joined,
    random_state,
    same_random_numbers,
)
from fairseq_posenc.attention.seen_keys import KeyGradient, Seen
from fairseq_posenc.basics.tensors import AT_LEAST_FLOAT32
from fairseq_posenc.basics.versions import is_compiling
from fairseq_posenc.flags.options import Layer

#: Most elements of the queries of a segment on a CPU, 0.5 MB: larger tensors of keys are slower.
SEGMENT = 131_072
#: Most elements of the queries of a segment on a GPU: 8,192 tokens of 512 channels.  Texts that are
#: one segment keep the keys that were read, since reading them again takes more kernels.
SEGMENT_ON_GPU = 4_194_304

#: Queries (n, L, H, D), their keys and values (n, S, H, D), and the bias (n, 1|H, L, S).
Given = Tuple[Tensor, Tensor, Tensor, Tensor]


class Replaced(NamedTuple):
    """Rows of the output that are computed elsewhere.

    Args:
        mask: True at these rows in the blocks with first tokens, (B·d, ·, L, 1, 1).
        rows: what stands there, (B·d, ·, L, H, D).
    """

    mask: Tensor
    rows: Tensor


class BlockAttention(NamedTuple):
    """Softmax attention of M blocks of queries.

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
        """The output (M, L, H, D).

        Args:
            q: queries (M, L, H, D).
            k: keys (M, L, H, D).
            v: values (M, L, H, D).
            bias: (M, 1|H, L, S) for the keys in the order of :meth:`.Seen.read`.
            replaced: rows that come from elsewhere, or None.
        """
        places = self.places(q)
        if len(places) > 1 and torch.is_grad_enabled() and not is_compiling():
            return ReadAgain.apply(self, q, k, v, bias, *(replaced or (None, None)))
        parts = [self.attend(*given)[0] for given in self.segments(places, q, k, v, bias)]
        if replaced is None:
            return joined(parts, 0)
        out = joined(parts, 0).clone()  # autograd keeps the output as it was
        self.replace(out, replaced)
        return out

    def places(self, q: Tensor) -> List[slice]:
        """The blocks of each segment."""
        most = SEGMENT_ON_GPU if q.is_cuda else SEGMENT
        return self.seen.segments(len(q), most // q[0].numel())

    def segments(
        self, places: List[slice], q: Tensor, k: Tensor, v: Tensor, bias: Tensor
    ) -> Iterator[Given]:
        """What is given for the blocks at each of the *places*."""
        for place in places:
            keys, values = (self.seen.read(x, place) for x in (k, v))
            yield q[place], keys, values, bias[place]

    def replace(self, out: Tensor, replaced: Replaced) -> None:
        """Write the rows that come from elsewhere into *out* (M, L, H, D)."""
        first = self.seen.first_blocks(out)
        first.copy_(torch.where(replaced.mask, replaced.rows, first))

    def attend(self, q: Tensor, keys: Tensor, values: Tensor, bias: Tensor) -> Tuple[Tensor]:
        """The output (n, L, H, D) of a segment."""
        q, keys, values = (x.transpose(1, 2) for x in (q, keys, values))
        out = attend(q, keys, values, self.scale, bias, False, self.rate, self.empty_rows)
        return (out.transpose(1, 2),)

    def attend_with_sums(self, q: Tensor, keys: Tensor, values: Tensor, bias: Tensor) -> Any:
        """The output of a segment, and what :meth:`gradients` needs beside it, (n, L, H)."""
        q, keys, values = (x.transpose(1, 2) for x in (q, keys, values))
        found = cpu_fused.attend_with_sums(q, keys, values, self.scale, bias)
        return tuple(x.transpose(1, 2) for x in found)

    def gradients(
        self, given: Given, gradient: Tensor, out: Tensor, sums: Tensor
    ) -> List[Optional[Tensor]]:
        """Gradients of what is *given* for a segment, none for the bias.

        Args:
            given: queries, keys, values and bias.
            gradient: the gradient of the output, (n, L, H, D).
            out: the output.
            sums: the second result of :meth:`attend_with_sums`.
        """
        heads = [x.transpose(1, 2) for x in given[:3]]
        outputs = (out.transpose(1, 2), sums.transpose(1, 2))
        found = cpu_fused.gradients_with_sums(
            gradient.transpose(1, 2), heads, self.scale, given[3], outputs
        )
        return [*(x.transpose(1, 2) for x in found), None]


class ReadAgain(torch.autograd.Function):
    """:class:`BlockAttention` that keeps the keys themselves, and not those that each block reads.

    The backward pass reads them again.  The fused kernel of a CPU also returns the numbers that its
    gradient needs, one for each query and head; elsewhere the output is computed again.
    """

    @staticmethod
    def forward(
        ctx: Layer,
        attention: BlockAttention,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        bias: Tensor,
        mask: Optional[Tensor],
        rows: Optional[Tensor],
    ) -> Tensor:
        """The output (M, L, H, D); *mask* and *rows* are those of :class:`Replaced`, or None."""
        ctx.attention = attention
        ctx.state = random_state(q.device) if attention.rate > 0 else None
        with_sums = cpu_fused.serves(q, bias, attention.rate)
        attend = attention.attend_with_sums if with_sums else attention.attend
        # a result made in each segment would lie between keys that are freed, and scatter the memory
        results = [q.new_empty(q.shape)]
        results += [q.new_empty(q.shape[:3], dtype=AT_LEAST_FLOAT32[q.dtype])] if with_sums else []
        with no_autocast(q.device):
            places = attention.places(q)
            for place, given in zip(places, attention.segments(places, q, k, v, bias)):
                for result, part in zip(results, attend(*given)):
                    result[place] = part
        out, *sums = results
        if mask is not None and rows is not None:
            attention.replace(out, Replaced(mask, rows))
        ctx.save_for_backward(q, k, v, bias, mask, *((out, *sums) if with_sums else (None, None)))
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Layer, gradient: Tensor) -> Tuple[Optional[Tensor], ...]:
        """Gradients of queries, keys, values, bias, and of the rows that are replaced."""
        q, k, v, bias, mask, out, sums = ctx.saved_tensors
        attention, wanted = ctx.attention, ctx.needs_input_grad[1:5]
        hidden = of_rows = None
        if mask is not None:
            hidden = mask.new_zeros(*gradient.shape[:2], 1, 1)
            attention.seen.first_blocks(hidden).copy_(mask)
            of_rows = attention.seen.first_blocks(gradient).masked_fill(~mask, 0.0)
        kinds = (OwnGradient, KeyGradient, KeyGradient, OwnGradient)
        totals: List[Any] = [
            kind(attention.seen, x) if needed else None
            for kind, x, needed in zip(kinds, (q, k, v, bias), wanted)
        ]
        with no_autocast(q.device), same_random_numbers(ctx.state, q.device):
            places = attention.places(q)
            for place, given in zip(places, attention.segments(places, q, k, v, bias)):
                own = gradient[place]
                own = own if hidden is None else own.masked_fill(hidden[place], 0.0)
                if sums is None:
                    found = gradients_of(attention.attend, given, wanted, (own,))
                else:
                    found = attention.gradients(given, own, out[place], sums[place])
                for total, part in zip(totals, found):
                    if total is not None and part is not None:
                        total.add(part, place)
        return (None, *(x if x is None else x.total() for x in totals), None, of_rows)


class OwnGradient:
    """The gradient of what each block has for itself, its queries or its bias, (M, …).

    Args:
        seen: as for :class:`.KeyGradient`.
        x: the queries or the bias.
    """

    def __init__(self, seen: Seen, x: Tensor) -> None:
        self.sums = torch.empty_like(x)

    def add(self, gradient: Tensor, place: slice) -> None:
        """Set the *gradient* of the blocks at *place*."""
        self.sums[place] = gradient

    def total(self) -> Tensor:
        """The gradient (M, …)."""
        return self.sums
