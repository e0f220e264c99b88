"""Softmax attention from blocks of queries to the keys that each sees, a few blocks at a time.

Longformer, Beltagy et al., arXiv 2004.05150; BigBird, Zaheer et al., arXiv 2007.14062.  Windows
overlap, so copies of the keys for all blocks would take several times the memory of the keys.
Therefore keys are copied for one segment of blocks at a time.  As in fused softmax attention, only
the inputs are saved for the backward pass, which copies the keys again.
"""

import contextlib
from typing import Any, Iterator, List, NamedTuple, Optional, Tuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from fairseq_posenc.attention.blocks import Blocks
from fairseq_posenc.attention.functional import attend
from fairseq_posenc.basics.tensors import AT_LEAST_FLOAT32, concatenated, no_autocast
from fairseq_posenc.basics.versions import is_compiling
from fairseq_posenc.flags.options import Layer

#: The largest number of elements in the queries of a segment on a CPU, 0.5 MB in float32; with
#: larger segments, reading the keys is slower.
SEGMENT = 131_072
#: The same for a GPU, 8,192 tokens of 512 channels.  A smaller batch is one segment, whose copied
#: keys are saved for the backward pass, because copying them again would start more GPU kernels.
SEGMENT_ON_GPU = 4_194_304


class BlockSlice(NamedTuple):
    """Consecutive blocks of consecutive sequences, an index into tensors (R, N, …)."""

    rows: slice
    blocks: slice

    @property
    def shape(self) -> Tuple[int, int]:
        """The number of sequences, and the number of blocks in each."""
        return self.rows.stop - self.rows.start, self.blocks.stop - self.blocks.start


def block_slices(rows: int, number: int, most: int) -> List[BlockSlice]:
    """Divide *rows* sequences of *number* blocks each into segments of at most *most* blocks.

    >>> [index.shape for index in block_slices(rows=3, number=3, most=6)]
    [(2, 3), (1, 3)]
    >>> [index.shape for index in block_slices(rows=2, number=3, most=2)]
    [(1, 2), (1, 1), (1, 2), (1, 1)]
    """
    most = max(most, 1)
    height, width = max(most // number, 1), min(most, number)
    return [
        BlockSlice(slice(row, min(row + height, rows)), slice(start, min(start + width, number)))
        for row in range(0, rows, height)
        for start in range(0, number, width)
    ]


class Seen(NamedTuple):
    """The keys that each block of queries sees.

    B sentences are split into R = B·d sequences of N blocks.
    """

    blocks: Blocks  # the split; a window is a block and its neighbours
    first: int = 0  # G; each block sees the first G tokens of its sentence
    # indices, from 0 to R·N - 1, of r further blocks that each block sees, (R, N, r), or None
    chosen: Optional[Tensor] = None

    def read(self, x: Tensor, index: BlockSlice) -> Tensor:
        """The keys or values (n, S, H, D) that n blocks at *index* see, from *x* (R, N, L, H, D).

        In dimension S, first tokens of the sentence precede the window; chosen blocks follow it.
        """
        rows, blocks = index
        parts = [self.blocks.around(x[rows], blocks.start, blocks.stop)]  # (·, ·, K, H, D)
        if self.first:
            first = self._first_tokens(x, rows).unsqueeze(1)
            parts.insert(0, first.expand(-1, index.shape[1], -1, -1, -1))
        if self.chosen is not None:
            chosen = x.flatten(0, 1).index_select(0, self.chosen[index].flatten())
            parts.append(chosen.view(*index.shape, -1, *x.shape[3:]))
        return concatenated(parts, 2).flatten(0, 1)

    def _first_tokens(self, x: Tensor, rows: slice) -> Tensor:
        """For each of the *rows*, the first G tokens of its sentence, (·, G, H, D)."""
        step = self.blocks.dilation
        start, stop = rows.start // step * step, -(-rows.stop // step) * step  # of whole sentences
        first = self.blocks.join(self.first_blocks(x)[start:stop], self.first)
        if step == 1:
            return first
        return first.repeat_interleave(step, dim=0)[rows.start - start : rows.stop - start]

    def first_blocks(self, x: Tensor) -> Tensor:
        """A view (R, ·, …) of the blocks of *x* (R, N, …) that hold the first G tokens."""
        return x[:, : self.blocks.count(self.first)]


class KeyGradient:
    """The gradient of keys or values x (R, N, L, H, D), summed over all blocks that see them."""

    def __init__(self, seen: Seen, x: Tensor) -> None:
        self.seen, self.sums = seen, x.new_zeros(x.shape)
        of_first = (len(x), seen.first, *x.shape[3:])
        self.first = x.new_zeros(of_first, dtype=AT_LEAST_FLOAT32[x.dtype])

    def add(self, gradient: Tensor, index: BlockSlice) -> None:
        """Add *gradient* (n, S, H, D) of the result of :meth:`Seen.read` for blocks at *index*."""
        seen, span = self.seen, self.seen.blocks.span
        gradient = gradient.unflatten(0, index.shape)
        rest = gradient.size(2) - seen.first - span
        first, window, chosen = gradient.split((seen.first, span, rest), dim=2)
        seen.blocks.add_around(self.sums[index.rows], window, index.blocks.start)
        if seen.first:
            self.first[index.rows].add_(first.sum(dim=1, dtype=self.first.dtype))
        if seen.chosen is not None:
            numbers, sums = seen.chosen[index].flatten(), self.sums.flatten(0, 1)
            sums.index_add_(0, numbers, chosen.reshape(len(numbers), *sums.shape[1:]))

    def total(self) -> Tensor:
        """The summed gradient (R, N, L, H, D)."""
        if self.seen.first:
            of_sentences = self.first.unflatten(0, (-1, self.seen.blocks.dilation)).sum(dim=1)
            self.seen.first_blocks(self.sums).add_(self.seen.blocks.split(of_sentences))
        return self.sums


class BlockAttention(NamedTuple):
    """Softmax attention of N blocks of queries in each of R sequences.

    *seen* selects the keys of every block.  The other fields are arguments of :func:`.attend`, in
    which *rate* is called *dropout*.
    """

    seen: Seen
    scale: float
    rate: float
    empty_rows: bool

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
        """The output (R, N, L, H, D) for *q*, *k* and *v* of the same shape.

        The keys of *bias* (R, N, 1|H, L, S) are in the order of :meth:`.Seen.read`.
        """
        most = SEGMENT_ON_GPU if q.is_cuda else SEGMENT
        slices = block_slices(q.size(0), q.size(1), most // q[0, 0].numel())
        if len(slices) > 1 and not is_compiling():
            return ReadAgain.apply(self, slices, q, k, v, bias)
        parts = [self.attend(*inputs) for _, inputs in self.segments(slices, q, k, v, bias)]
        return concatenated(parts, 0).view(q.shape)

    def segments(
        self, slices: List[BlockSlice], q: Tensor, k: Tensor, v: Tensor, bias: Tensor
    ) -> Iterator[Tuple[BlockSlice, Tuple[Tensor, ...]]]:
        """For each segment, its index and its arguments for :meth:`attend`."""
        for index in slices:
            keys, values = (self.seen.read(x, index) for x in (k, v))
            yield index, (q[index].flatten(0, 1), keys, values, bias[index].flatten(0, 1))

    def attend(self, q: Tensor, keys: Tensor, values: Tensor, bias: Tensor) -> Tensor:
        """The output (n, L, H, D) for queries (n, L, H, D) and keys and values (n, S, H, D)."""
        q, keys, values = (x.transpose(1, 2) for x in (q, keys, values))
        out = attend(q, keys, values, self.scale, bias, False, self.rate, self.empty_rows)
        return out.transpose(1, 2)


def random_state(device: torch.device) -> Tensor:
    """The state of the random generator of *device*."""
    on_gpu = device.type == "cuda"
    return torch.cuda.get_rng_state(device) if on_gpu else torch.get_rng_state()


@contextlib.contextmanager
def same_random_numbers(state: Optional[Tensor], device: torch.device) -> Iterator[Any]:
    """A context in which random numbers start from *state*, a result of :func:`random_state`.

    After the context, the generator has its earlier state.  If *state* is None, nothing changes.
    """
    if state is None:
        yield
        return
    on_gpu = device.type == "cuda"
    with torch.random.fork_rng([device] if on_gpu else []):
        torch.cuda.set_rng_state(state, device) if on_gpu else torch.set_rng_state(state)
        yield


class ReadAgain(torch.autograd.Function):
    """Block attention that saves its inputs for the backward pass, but no copies of keys.

    The backward pass copies the keys of each segment again, and recomputes the segment's output.
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
    ) -> Tensor:
        """The output (R, N, L, H, D)."""
        ctx.attention, ctx.slices = attention, slices
        ctx.state = random_state(q.device) if attention.rate > 0 else None
        ctx.save_for_backward(q, k, v, bias)
        # allocated at once: a result per segment would lie between freed keys and fragment memory
        out = q.new_empty(q.shape)
        with no_autocast(q.device):
            for index, inputs in attention.segments(slices, q, k, v, bias):
                out[index] = attention.attend(*inputs).unflatten(0, index.shape)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Layer, gradient: Tensor) -> Tuple[Optional[Tensor], ...]:
        """Gradients of queries, keys, values and bias."""
        attention, needed = ctx.attention, ctx.needs_input_grad[2:]
        q, k, v, bias = ctx.saved_tensors
        of_keys = [
            KeyGradient(attention.seen, x) if each else None for x, each in zip((k, v), needed[1:3])
        ]
        of_q = torch.empty_like(q) if needed[0] else None
        of_bias = torch.empty_like(bias) if needed[3] else None
        with no_autocast(q.device), same_random_numbers(ctx.state, q.device):
            for index, inputs in attention.segments(ctx.slices, q, k, v, bias):
                leaves = [x.detach().requires_grad_(each) for x, each in zip(inputs, needed)]
                with torch.enable_grad():
                    out = attention.attend(*leaves)
                sources = [x for x in leaves if x.requires_grad]
                of_out = gradient[index].flatten(0, 1)
                parts = iter(torch.autograd.grad(out, sources, of_out))
                if of_q is not None:
                    of_q[index] = next(parts).unflatten(0, index.shape)
                for total in of_keys:
                    if total is not None:
                        total.add(next(parts), index)
                if of_bias is not None:
                    of_bias[index] = next(parts).unflatten(0, index.shape)
        totals = (total if total is None else total.total() for total in of_keys)
        return (None, None, of_q, *totals, of_bias)
