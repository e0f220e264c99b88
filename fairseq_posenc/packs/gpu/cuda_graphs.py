"""``--cuda-graphs``: decoding steps that a GPU replays, without waiting for its host.

For every token of a translation, the host starts some hundred operations, and a GPU finishes each
before the host starts the next.  A CUDA graph starts all of them at once (see recorded_step.py).

The first step of a batch is not recorded.  Later batches of the same sizes reuse a recording.
"""

import math
import weakref
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Tuple

import torch
from torch import Tensor

from fairseq_posenc.attention import Padding, flag_of_kernel
from fairseq_posenc.attention.base import launch_bound
from fairseq_posenc.attention.cache import STATE, counted, take_cache
from fairseq_posenc.attention.functional import product_dtype
from fairseq_posenc.basics.errors import UsageError, flag_of
from fairseq_posenc.flags.options import Layer, Options, option
from fairseq_posenc.flags.settings import SAME, setting
from fairseq_posenc.packs.gpu.recorded_step import Caches, Recording, Sizes, source_keys
from fairseq_posenc.stacks.decoder import CacheState, Steps, Weights
from fairseq_posenc.stacks.positions import Assigned

FLAG = "--cuda-graphs"
#: A recording has room for a multiple of BLOCK tokens and a multiple of SENTENCES sentences.
BLOCK, SENTENCES = 64, 4
#: Maximum number of recordings that are kept although no batch uses them.
MOST = 3
_BATCH = "recorded_batch"  # key in the incremental state


@dataclass
class GraphFlags:
    """The flag of recorded decoding steps."""

    cuda_graphs: Optional[bool] = setting(
        False,
        "in generation on a GPU, record a decoding step as a CUDA graph and replay the graph for "
        "every token; no effect in training or on a CPU",
        role="free",
        exported=SAME,
    )


def room(number: int, block: int) -> int:
    """*number* rounded up to a multiple of *block*.

    >>> room(65, 64)
    128
    """
    return -(-number // block) * block


class RecordedBatch:
    """A batch that uses a recording; the incremental state of the batch holds this object.

    The batch has B = *rows* hypotheses, and S = *length* tokens in the cache.
    """

    recording: Recording

    def __init__(self, rows: int, length: int) -> None:
        self.rows, self.length = rows, length
        #: for each row, the index of the row that it continues, (B,); None if all stay in place
        self.order: Optional[Tensor] = None
        #: the cached keys of the source that were last copied to the recording, (N, G, S', D)
        self.source: Optional[Tensor] = None

    def reorder(self, order: Tensor) -> None:
        """Let row i continue row ``order[i]``, for *order* (B',)."""
        self.order = order if self.order is None else self.order.index_select(0, order)
        self.rows = order.size(0)

    def caches(self) -> Caches:
        """Copies of the caches, reordered and cut to the tokens so far."""
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


class Recorder(Steps):
    """Records the steps of a decoder, and replays them where possible.

    Raises:
        UsageError: the steps of the decoder cannot be recorded.
    """

    def __init__(self, cfg: Options, decoder: Layer) -> None:
        super().__init__()
        for name in ("position_ids", "compile_layers"):
            if option(cfg, name, None):
                raise UsageError(f"{FLAG}: cannot be combined with {flag_of(name)}; drop one")
        if not decoder.kernels()[0].static_cache:
            raise UsageError(
                f"{FLAG}: steps of {flag_of_kernel(cfg)} change shape with every token; drop "
                "the flag, or give softmax attention, linear attention or gated units"
            )
        bounds = [e.stack.max_positions for e in decoder.encodings.values() if e.bounded]
        #: maximum number of target tokens
        self.most = min(bounds, default=math.inf)
        #: recordings, the most recent last
        self.recordings: List[Recording] = []

    def __getstate__(self) -> Dict[str, Any]:
        """The state for a copy; recordings are left out, as they read this decoder's parameters."""
        return {**vars(self), "recordings": []}

    def train(self, mode: bool = True) -> "Recorder":
        """Drop the recordings; new ones are made after training."""
        self.recordings = []
        return super().train(mode)

    def _apply(self, *args: Any, **kwargs: Any) -> "Recorder":
        """Drop the recordings, because they read parameters of the old type and device."""
        self.recordings = []
        return super()._apply(*args, **kwargs)

    def reorder_incremental_state(self, incremental_state: CacheState, new_order: Tensor) -> None:
        """Let row i continue row ``new_order[i]`` if steps are recorded; *new_order* is (B',)."""
        if _BATCH in incremental_state:
            incremental_state[_BATCH].reorder(new_order)

    def cached_length(self, state: CacheState) -> Optional[int]:
        """Number of tokens in the cache of the recorded batch, or None without a recording."""
        batch = state.get(_BATCH)
        return None if batch is None else batch.length

    def step(
        self,
        decoder: Layer,
        tokens: Tensor,
        seen: int,
        padding: Padding,
        assigned: Optional[Assigned],
        encoder_out: Any,
        state: CacheState,
        weights: Weights,
    ) -> Optional[Tuple[Tensor, Optional[Tensor]]]:
        """Replay a step where possible; see :meth:`.Steps.step`."""
        batch, (rows, length) = state.get(_BATCH), tokens.shape
        like = next(decoder.parameters())
        fits = seen > 0 and length == seen + 1 and (batch is None or batch.rows == rows)
        plain = padding.mask is None and assigned is None and not decoder.training
        if not (fits and plain and launch_bound(tokens)) or product_dtype(like) is not like.dtype:
            for kernel, parts in [] if batch is None else state.pop(_BATCH).caches():
                kernel.set_incremental_state(state, STATE, parts)
            return None
        # tensors created in inference mode cannot be written outside of it
        with torch.inference_mode(False), torch.no_grad():
            if batch is None:
                batch = RecordedBatch(rows, seen)
                caches = [(each, take_cache(each, state)) for each in decoder.kernels()]
                self._use(batch, decoder, caches, state, weights)
                state[_BATCH] = batch
            elif seen == batch.recording.sizes.length or batch.recording.sizes.weights != weights:
                self._use(batch, decoder, batch.caches(), state, weights)
            recording, keys = batch.recording, source_keys(decoder, state)
            if keys is not None and keys is not batch.source:
                recording.take_sources(state, decoder.source_of(encoder_out, keys)[1])
                batch.source = keys
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
        batch: RecordedBatch,
        decoder: Layer,
        caches: Caches,
        state: CacheState,
        weights: Weights,
    ) -> None:
        """Give *batch* a recording with room for one more token, filled from *caches*."""
        source, like = source_keys(decoder, state), next(decoder.parameters())
        number, source_length = (0, 0) if source is None else (source.size(0), source.size(2))
        copies = batch.rows // number if number else 1
        places = room(batch.rows // copies, SENTENCES)
        if hasattr(batch, "recording"):  # keep the number of source rows of the first step
            places = batch.recording.sizes.rows // copies
            batch.recording.user = lambda: None
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
        recording.take(caches)
        batch.recording, batch.order, batch.source = recording, None, None
        recording.user = weakref.ref(batch)


def recorder(cfg: Options, decoder: Layer) -> Optional[Recorder]:
    """The recorder of a decoder if ``--cuda-graphs`` is on, else None."""
    return Recorder(cfg, decoder) if option(cfg, "cuda_graphs", False) else None
