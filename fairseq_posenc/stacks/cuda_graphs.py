"""``--cuda-graphs``: decoding steps that a GPU runs from a recording, without waiting for its host.

The host starts some hundred operations for every token of a translation, and a GPU is done with
them before the next one comes.  A CUDA graph starts all of them at once, but always on the same
tensors.  So a step that can be recorded has tensors that keep their shapes and places:

* The caches have room for a multiple of 64 tokens.  Which of them is the new one is a number on the
  device, and those behind it are hidden, as padding is.
* The source has room for a multiple of 64 tokens, too, and the batch for a multiple of 4 sentences.
* Hypotheses are reordered inside of the step, at its beginning.

The first step of a batch is computed as ever.  A recording serves all later batches of its sizes.
"""

import copy
import math
import weakref
from dataclasses import dataclass
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import torch
from torch import Tensor

from fairseq_posenc.attention import AttentionKernel
from fairseq_posenc.attention.cache import (
    COLUMN,
    STATE,
    IncrementalState,
    Parts,
    counted,
    take_cache,
)
from fairseq_posenc.attention.functional import product_dtype
from fairseq_posenc.attention.joint import wanted
from fairseq_posenc.attention.kernels import flag_of_kernel
from fairseq_posenc.basics.errors import UsageError, flag_of
from fairseq_posenc.flags.options import Layer, Options, option
from fairseq_posenc.flags.settings import setting
from fairseq_posenc.stacks.explicit import Explicit
from fairseq_posenc.stacks.padding import Keys, Padding
from fairseq_posenc.stacks.positions import StackPositions

FLAG = "--cuda-graphs"
#: A recording has room for multiples of so many tokens and sentences.
BLOCK, SENTENCES = 64, 4
#: The most recordings that are kept while no batch uses them.
MOST = 3
_BATCH = "recorded_batch"  # key in the incremental state
State = Dict[str, Any]
Weights = Tuple[Optional[int], Optional[int]]
Caches = List[Tuple[AttentionKernel, Parts]]


@dataclass
class GraphFlags:
    """The flag of recorded decoding steps."""

    cuda_graphs: Optional[bool] = setting(
        False,
        "in generation on a GPU, record a decoding step as a CUDA graph and run that for every "
        "token; no effect in training and on a CPU",
        role="free",
    )


def room(number: int, block: int) -> int:
    """The least multiple of *block* that is not below *number*.

    >>> room(65, 64)
    128
    """
    return -(-number // block) * block


def recorded_length(state: IncrementalState) -> Optional[int]:
    """Number of tokens in the caches of recorded steps, or None if there are none."""
    batch: Any = (state or {}).get(_BATCH)
    return None if batch is None else batch.length


def _kernels_of(decoder: Layer) -> List[AttentionKernel]:
    return [module for module in decoder.modules() if isinstance(module, AttentionKernel)]


def _attentions_to_source(decoder: Layer) -> List[Layer]:
    found = [getattr(layer, "encoder_attn", None) for layer in decoder.layers]
    return [attention for attention in found if attention is not None]


def _source_keys(decoder: Layer, state: State) -> Optional[Tensor]:
    """The keys of the source in the first layer, (N, G, S', D), or None without a source."""
    for attention in _attentions_to_source(decoder):
        return attention._get_input_buffer(state).get("prev_key")
    return None


class Sizes(NamedTuple):
    """What tells recordings apart."""

    rows: int  # R, hypotheses
    length: int  # S, target tokens
    sources: int  # N, sentences; hypotheses, where each has a copy of its source
    source_length: int  # S', source tokens
    weights: Weights  # the layer whose attention to the source is returned, or None; its heads
    dtype: torch.dtype
    device: torch.device


class Recording:
    """One decoding step, on tensors that keep their places.

    Args:
        decoder: the decoder.
        sizes: the sizes of the tensors.
        caches: those of a batch, whose tensors have as many heads and channels.
        state: the incremental state of that batch, in which keys and values of the source are.
    """

    def __init__(self, decoder: Layer, sizes: Sizes, caches: Caches, state: State) -> None:
        self.sizes, device = sizes, sizes.device
        #: a weak reference to the batch that uses the recording
        self.user: Any = lambda: None
        self.tokens = torch.full((sizes.rows, 1), decoder.padding_idx, device=device)
        self.column = torch.zeros(1, dtype=torch.int64, device=device)
        self.rows = torch.arange(sizes.rows, device=device)
        self.order = self.rows.clone()
        self.state: State = {COLUMN: self.column}
        self.of_sums = decoder.positions.abilities.static_cache == "sums"
        self.caches: Caches = []
        for kernel, parts in caches:
            self.caches.append((kernel, {name: self._room(x) for name, x in parts.items()}))
            kernel.set_incremental_state(self.state, STATE, self.caches[-1][1])
        self.sources: List[Tuple[Layer, Parts]] = []
        for attention in _attentions_to_source(decoder):
            parts = {
                name: x.new_zeros(sizes.sources, x.size(1), sizes.source_length, x.size(3))
                for name, x in attention._get_input_buffer(state).items()
            }
            attention._set_input_buffer(self.state, parts)
            self.sources.append((attention, parts))
        shape = (sizes.rows, 1, 1, sizes.source_length)
        self.source_bias = torch.zeros(shape, dtype=sizes.dtype, device=device)
        self.output: Tuple[Tensor, Optional[Tensor]]
        self.graph: Any = None
        if device.type == "cuda":
            self._record(decoder)

    def _room(self, x: Tensor) -> Tensor:
        """Memory for a part *x* of a cache, (B, H, S, D), or sums (B, H, …)."""
        if not x.numel():  # the number of tokens, which a step does not read
            return counted(self.rows, 0)
        length = () if self.of_sums else (self.sizes.length,)
        return x.new_zeros(self.sizes.rows, x.size(1), *length, *x.shape[2 + len(length) :])

    def _record(self, decoder: Layer) -> None:
        """Record the step, which has to be done before, so that libraries are ready."""
        current, other = torch.cuda.current_stream(), torch.cuda.Stream()
        other.wait_stream(current)
        with torch.cuda.stream(other):
            self._compute(decoder)
        current.wait_stream(other)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.output = self._compute(decoder)
        self.graph = graph

    def replay(self, decoder: Layer) -> None:
        """Do the step; where nothing is recorded, on a CPU, by computing it."""
        if self.graph is None:
            self.output = self._compute(decoder)
        else:
            self.graph.replay()

    def _compute(self, decoder: Layer) -> Tuple[Tensor, Optional[Tensor]]:
        """States (R, 1, C) after the new tokens, and weights (R, 1, S') or None."""
        for x in self._parts():
            x.copy_(x.index_select(0, self.order))
        new = keys = self.column.unsqueeze(0)  # (1, 1)
        hidden = None
        if not self.of_sums:
            keys = torch.arange(self.sizes.length, device=self.sizes.device).unsqueeze(0)
            hidden = keys > new
        places = Explicit(new, keys, self.sizes.length, even=False, of_queries=new)
        given = Keys(keys.size(1), Padding(hidden, explicit=places), causal=True)
        # keys and values of the source are in the state
        source = (self.source_bias, self.source_bias) if self.sources else (None, None)
        x = decoder.embed_new(self.tokens, 0, None, given.padding)
        x, attn, _ = decoder.apply_layers(x, given, source, self.state, self.sizes.weights)
        for kernel, parts in self.caches:
            found: Any = kernel.get_incremental_state(self.state, STATE)
            for name, old in parts.items():
                if old.numel() and found[name] is not old:  # sums
                    old.copy_(found[name])
            kernel.set_incremental_state(self.state, STATE, parts)
        return x, attn

    def _parts(self) -> List[Tensor]:
        return [x for _, parts in self.caches for x in parts.values() if x.numel()]

    def take(self, caches: Caches) -> None:
        """Copy the caches of a batch.  What is behind their tokens has to be 0, for sums."""
        for x in self._parts():
            x.zero_()
        for (_, parts), (_, given) in zip(self.caches, caches):
            for name, x in given.items():
                if x.numel():
                    parts[name][tuple(slice(size) for size in x.shape)].copy_(x)

    def take_sources(self, state: State, bias: Optional[Tensor]) -> None:
        """Copy keys and values of the source from *state*, and its padding.

        Args:
            state: the incremental state of the batch.
            bias: the padding as an additive mask, (B, 1, 1, S'), or None.
        """
        for attention, parts in self.sources:
            for name, x in attention._get_input_buffer(state).items():
                parts[name][: x.size(0), :, : x.size(2)].copy_(x)
                self.source_bias.fill_(float("-inf"))[..., : x.size(2)] = 0.0
        if bias is not None:
            self.source_bias[: bias.size(0), ..., : bias.size(3)].copy_(bias)


class Batch:
    """A batch whose steps are recorded; its incremental state holds it.

    Args:
        rows: B, the number of hypotheses.
        length: S, the number of tokens in the cache.
    """

    recording: Recording

    def __init__(self, rows: int, length: int) -> None:
        self.rows, self.length = rows, length
        #: the row whose past each row continues, (B, ), or None if that is its own
        self.order: Optional[Tensor] = None
        #: keys of the source, as the attention kept them when they were copied, (N, G, S', D)
        self.source: Optional[Tensor] = None

    def use(self, recording: Recording, caches: Caches) -> None:
        """Go on with *recording*, from *caches*."""
        if hasattr(self, "recording"):
            self.recording.user = lambda: None
        recording.take(caches)
        self.recording, self.order, self.source = recording, None, None
        recording.user = weakref.ref(self)

    def reorder(self, order: Tensor) -> None:
        """Let row i continue what row ``order[i]`` held, (B', )."""
        self.order = order if self.order is None else self.order.index_select(0, order)
        self.rows = order.size(0)

    def caches(self) -> Caches:
        """Copies of the caches, with the tokens so far."""
        recording = self.recording
        order = recording.rows[: self.rows] if self.order is None else self.order

        def part(x: Tensor) -> Tensor:
            if not x.numel():
                return counted(order, self.length)
            x = x.index_select(0, order)
            return x if recording.of_sums else x[:, :, : self.length]

        return [
            (kernel, {name: part(x) for name, x in parts.items()})
            for kernel, parts in recording.caches
        ]

    def __deepcopy__(self, memo: Any) -> None:
        raise UsageError(f"{FLAG}: the state of a search cannot be copied; drop the flag")


class Recorder:
    """Recorded steps of a decoder: does a step by one if it can.

    Args:
        cfg: fairseq's nested Transformer configuration.
        positions: those of the decoder.

    Raises:
        UsageError: its steps cannot be recorded.
    """

    def __init__(self, cfg: Options, positions: StackPositions) -> None:
        for name in ("document_mask", "position_ids", "compile_layers"):
            if option(cfg, name, None):
                raise UsageError(f"{FLAG}: cannot be combined with {flag_of(name)}; drop one")
        if positions.abilities.static_cache is None:
            raise UsageError(
                f"{FLAG}: steps of {flag_of_kernel(cfg)} have other shapes for every token; drop "
                "the flag, or give softmax attention, linear attention or gated units"
            )
        bounds = [e.stack.max_positions for e in positions.encodings.values() if e.bounded]
        #: the most tokens that there can be
        self.most = min(bounds, default=math.inf)
        #: the latest last
        self.recordings: List[Recording] = []

    def __deepcopy__(self, memo: Any) -> "Recorder":
        """A copy without recordings, which are of the parameters of one decoder."""
        fresh = copy.copy(self)
        fresh.clear()
        return fresh

    def __getstate__(self) -> Dict[str, Any]:
        return {**vars(self), "recordings": []}

    def clear(self) -> None:
        """Forget all recordings."""
        self.recordings = []

    def reorder(self, state: State, order: Tensor) -> None:
        """Let row i continue what row ``order[i]`` held, (B', ), if steps are recorded."""
        if _BATCH in state:
            state[_BATCH].reorder(order)

    def step(
        self,
        decoder: Layer,
        tokens: Tensor,
        padding: Padding,
        encoder_out: Any,
        state: State,
        weights: Weights,
    ) -> Optional[Tuple[Tensor, Optional[Tensor]]]:
        """Do a step by a recording, or return None if it has to be done otherwise.

        Args:
            decoder: the decoder.
            tokens: all tokens so far, (B, S).
            padding: their padding.
            encoder_out: output of the encoder, or None.
            state: fairseq's cache.
            weights: the layer whose attention to the source is returned, or None; its heads.

        Returns:
            states (B, 1, C) and weights (B, 1, S') or None.
        """
        batch, (rows, length) = state.get(_BATCH), tokens.shape
        seen, like = decoder.cached_length(state), next(decoder.parameters())
        fits = seen > 0 and length == seen + 1 and (batch is None or batch.rows == rows)
        plain = padding.mask is None and padding.explicit is None and not decoder.training
        if not (fits and plain and wanted(tokens)) or product_dtype(like) is not like.dtype:
            if batch is not None:
                self._leave(state)
            return None
        # tensors made in inference mode could not be written to outside of it
        with torch.inference_mode(False), torch.no_grad():
            if batch is None:
                batch = Batch(rows, seen)
                caches = [(each, take_cache(each, state)) for each in _kernels_of(decoder)]
                self._use(batch, decoder, caches, state, weights, like)
                state[_BATCH] = batch
            elif seen == batch.recording.sizes.length or batch.recording.sizes.weights != weights:
                self._use(batch, decoder, batch.caches(), state, weights, like)
            recording = batch.recording
            self._update_source(batch, decoder, encoder_out, state)
            recording.tokens[:rows].copy_(tokens[:, -1:])
            recording.column.fill_(seen)
            order = recording.rows if batch.order is None else batch.order
            recording.order[: order.size(0)].copy_(order)
            recording.replay(decoder)
            batch.length, batch.order = length, None
            x, attn = recording.output
            if attn is not None and batch.source is not None:
                attn = attn[:rows, :, : batch.source.size(2)].clone()
            return x[:rows].clone(), attn

    def _use(
        self,
        batch: Batch,
        decoder: Layer,
        caches: Caches,
        state: State,
        weights: Weights,
        like: Tensor,
    ) -> None:
        """Let *batch* go on from *caches* with a recording that has room for another token."""
        source = _source_keys(decoder, state)
        number, source_length = (0, 0) if source is None else (source.size(0), source.size(2))
        copies = batch.rows // number if number else 1
        places = room(batch.rows // copies, SENTENCES)
        if hasattr(batch, "recording"):  # its source has the rows of its first step
            places = batch.recording.sizes.rows // copies
        sizes = Sizes(
            places * copies,
            int(min(room(batch.length + 1, BLOCK), self.most)),
            places if number else 0,
            room(source_length, BLOCK),
            weights,
            like.dtype,
            like.device,
        )
        free = (r for r in reversed(self.recordings) if r.sizes == sizes and r.user() is None)
        recording = next(free, None)
        if recording is None:
            recording = Recording(decoder, sizes, caches, state)
        self.recordings = [r for r in self.recordings if r is not recording]
        unused = [r for r in self.recordings if r.user() is None]
        self.recordings = [r for r in self.recordings if r not in unused[:-MOST]] + [recording]
        batch.use(recording, caches)

    def _update_source(self, batch: Batch, decoder: Layer, encoder_out: Any, state: State) -> None:
        """Copy keys and values of the source where the attention to it has others than before."""
        found = _source_keys(decoder, state)
        if found is not None and found is not batch.source:
            batch.recording.take_sources(state, decoder.source_of(encoder_out, found)[1])
            batch.source = found

    def _leave(self, state: State) -> None:
        """Put the caches back into *state*, for a step that is not recorded."""
        for kernel, parts in state.pop(_BATCH).caches():
            kernel.set_incremental_state(state, STATE, parts)
