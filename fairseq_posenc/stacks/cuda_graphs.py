"""``--cuda-graphs``: decoding steps that a GPU runs from a recording, without waiting for its host.

The host starts some hundred operations for every token of a translation, and a GPU is done with
them before the next one comes.  A CUDA graph starts all of them at once (see recorded_step.py).

The first step of a batch is computed as ever.  A recording serves all later batches of its sizes.
"""

import math
import weakref
from typing import Any, Dict, List, Optional, Tuple

import torch
from torch import Tensor

from fairseq_posenc.attention import Padding
from fairseq_posenc.attention.cache import STATE, IncrementalState, counted, take_cache
from fairseq_posenc.attention.functional import product_dtype
from fairseq_posenc.attention.joint import wanted
from fairseq_posenc.attention.kernels import flag_of_kernel
from fairseq_posenc.attention.recording import FLAG
from fairseq_posenc.basics.errors import UsageError, flag_of
from fairseq_posenc.flags.options import Layer, Options, option
from fairseq_posenc.stacks.explicit import Explicit
from fairseq_posenc.stacks.positions import StackPositions
from fairseq_posenc.stacks.recorded_step import (
    Caches,
    Recording,
    Sizes,
    State,
    Weights,
    source_keys,
)

#: A recording has room for multiples of so many tokens and sentences.
BLOCK, SENTENCES = 64, 4
#: The most recordings that are kept while no batch uses them.
MOST = 3
_BATCH = "recorded_batch"  # key in the incremental state


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
    """The recorded steps of a decoder: replays one for a decoding step where that is possible.

    Args:
        cfg: fairseq's nested Transformer configuration.
        positions: the positions of the decoder.

    Raises:
        UsageError: the steps of the decoder cannot be recorded.
    """

    def __init__(self, cfg: Options, positions: StackPositions) -> None:
        for name in ("document_mask", "position_ids", "compile_layers"):
            if option(cfg, name, None):
                raise UsageError(f"{FLAG}: cannot be combined with {flag_of(name)}; drop one")
        if not positions.kernel.static_cache:
            raise UsageError(
                f"{FLAG}: steps of {flag_of_kernel(cfg)} have other shapes for every token; drop "
                "the flag, or give softmax attention, linear attention or gated units"
            )
        bounds = [e.stack.max_positions for e in positions.encodings.values() if e.bounded]
        #: the most tokens that there can be
        self.most = min(bounds, default=math.inf)
        #: the latest last
        self.recordings: List[Recording] = []

    def __getstate__(self) -> Dict[str, Any]:
        """The state of a copy, without recordings: these read the parameters of this decoder."""
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
        seen: int,
        padding: Padding,
        explicit: Optional[Explicit],
        encoder_out: Any,
        state: State,
        weights: Weights,
    ) -> Optional[Tuple[Tensor, Optional[Tensor]]]:
        """Do a step by a recording, or return None if it has to be done otherwise.

        Args:
            decoder: the decoder.
            tokens: all tokens so far, (B, S).
            seen: how many of them are in the cache.
            padding: their padding.
            explicit: their positions, or None if they are counted.
            encoder_out: output of the encoder, or None.
            state: fairseq's cache.
            weights: as for the decoder's ``apply_layers``.

        Returns:
            states (B, 1, C) and weights (B, 1, S') or None.
        """
        batch, (rows, length) = state.get(_BATCH), tokens.shape
        like = next(decoder.parameters())
        fits = seen > 0 and length == seen + 1 and (batch is None or batch.rows == rows)
        plain = padding.mask is None and explicit is None and not decoder.training
        if not (fits and plain and wanted(tokens)) or product_dtype(like) is not like.dtype:
            if batch is not None:
                self._leave(state)
            return None
        # tensors made in inference mode could not be written to outside of it
        with torch.inference_mode(False), torch.no_grad():
            if batch is None:
                batch = Batch(rows, seen)
                caches = [(each, take_cache(each, state)) for each in decoder.kernels()]
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
        source = source_keys(decoder, state)
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
        """Copy the keys and values of the source if they changed since the last copy."""
        found = source_keys(decoder, state)
        if found is not None and found is not batch.source:
            batch.recording.take_sources(state, decoder.source_of(encoder_out, found)[1])
            batch.source = found

    def _leave(self, state: State) -> None:
        """Put the caches back into *state*, for a step that is not recorded."""
        for kernel, parts in state.pop(_BATCH).caches():
            kernel.set_incremental_state(state, STATE, parts)
