"""One decoding step on tensors with constant shapes and addresses, so that a GPU can record it.

A CUDA graph starts all operations of a step at once, but always on the same tensors.  Therefore:

* The caches have room for further tokens.  A tensor on the device holds the index of the new token;
  later positions are hidden, like padding.
* There is also room for more source tokens and more hypotheses.
* The recorded step includes the reordering of the hypotheses.
"""

from typing import Any, List, NamedTuple, Optional, Tuple

import torch
from torch import Tensor

from fairseq_posenc.attention import AttentionKernel, Batch, Padding
from fairseq_posenc.attention.cache import COLUMN, STATE, Parts, counted
from fairseq_posenc.encodings import Places
from fairseq_posenc.flags.options import Layer
from fairseq_posenc.stacks.decoder import CacheState, Weights
from fairseq_posenc.stacks.positions import Assigned

Caches = List[Tuple[AttentionKernel, Parts]]


def attentions_to_source(decoder: Layer) -> List[Layer]:
    """The cross-attention modules of *decoder*."""
    attentions = [getattr(layer, "encoder_attn", None) for layer in decoder.layers]
    return [attention for attention in attentions if attention is not None]


def source_keys(decoder: Layer, state: CacheState) -> Optional[Tensor]:
    """The cached source keys of the first layer, (N, G, S', D), or None without a source."""
    for attention in attentions_to_source(decoder):
        return attention._get_input_buffer(state).get("prev_key")
    return None


class Sizes(NamedTuple):
    """The sizes and settings for which a recording is made."""

    rows: int  # R, hypotheses
    length: int  # S, target tokens
    sources: int  # N, sentences, or hypotheses if each has a copy of its source
    source_length: int  # S', source tokens
    weights: Weights  # the layer whose cross-attention is returned, and heads to average
    dtype: torch.dtype
    device: torch.device


class Recording:
    """One decoding step on tensors with constant addresses.

    Numbers of heads and channels, and types, follow from the *caches* of a batch and from the
    source keys and values in its incremental *state*.
    """

    def __init__(self, decoder: Layer, sizes: Sizes, caches: Caches, state: CacheState) -> None:
        self.sizes, device = sizes, sizes.device
        #: a weak reference to the batch that uses the recording
        self.user: Any = lambda: None
        self.tokens = torch.full((sizes.rows, 1), decoder.padding_idx, device=device)
        self.column = torch.zeros(1, dtype=torch.int64, device=device)
        self.rows = torch.arange(sizes.rows, device=device)
        self.order = self.rows.clone()
        self.state: CacheState = {COLUMN: self.column}
        #: whether the cache has a constant size, as in linear attention
        self.of_sums = caches[0][0].static_cache == "sums"
        self.caches: Caches = []
        for kernel, parts in caches:
            self.caches.append((kernel, {name: self._room(x) for name, x in parts.items()}))
            kernel.set_incremental_state(self.state, STATE, self.caches[-1][1])
        self.sources: List[Tuple[Layer, Parts]] = []
        for attention in attentions_to_source(decoder):
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
        """Zeros with room for a tensor *x* of a cache: (B, H, S, D), or sums (B, H, …)."""
        if not x.numel():  # prev_tokens, which a step does not read
            return counted(self.rows, 0)
        length = () if self.of_sums else (self.sizes.length,)
        return x.new_zeros(self.sizes.rows, x.size(1), *length, *x.shape[2 + len(length) :])

    def _record(self, decoder: Layer) -> None:
        """Compute the step once, to initialise libraries, and then record it."""
        with torch.cuda.device(self.sizes.device):
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
        """Replay the step, or compute it on a CPU, where nothing is recorded."""
        if self.graph is None:
            self.output = self._compute(decoder)
        else:
            self.graph.replay()

    def _compute(self, decoder: Layer) -> Tuple[Tensor, Optional[Tensor]]:
        """Compute states (R, 1, C) of new tokens, and attention weights (R, 1, S') or None."""
        for x in self._parts():
            x.copy_(x.index_select(0, self.order))
        new = keys = self.column.unsqueeze(0)  # (1, 1)
        hidden = None
        if not self.of_sums:
            keys = torch.arange(self.sizes.length, device=self.sizes.device).unsqueeze(0)
            hidden = keys > new
        bound = self.sizes.length
        places, padding = Places(new, keys, bound), Padding(hidden)
        # the keys and values of the source are in the state
        source = (self.source_bias, self.source_bias) if self.sources else (None, None)
        x = decoder.embed_new(self.tokens, 0, None, padding, Assigned(new, bound, places))
        batch = Batch(x, keys.size(1), padding, causal=True, assigned=places)
        x, attn, _ = decoder.apply_layers(batch, source, self.state, self.sizes.weights)
        for kernel, parts in self.caches:
            cache: Any = kernel.get_incremental_state(self.state, STATE)
            for name, old in parts.items():
                if old.numel() and cache[name] is not old:  # sums are new tensors
                    old.copy_(cache[name])
            kernel.set_incremental_state(self.state, STATE, parts)
        return x, attn

    def _parts(self) -> List[Tensor]:
        return [x for _, parts in self.caches for x in parts.values() if x.numel()]

    def take(self, caches: Caches) -> None:
        """Copy the caches of a batch.

        Unused memory after the cached tokens has to be 0, because some encodings sum over all keys.
        """
        for x in self._parts():
            x.zero_()
        for (_, parts), (_, kept) in zip(self.caches, caches):
            for name, x in kept.items():
                if x.numel():
                    parts[name][tuple(slice(size) for size in x.shape)].copy_(x)

    def take_sources(self, state: CacheState, bias: Optional[Tensor]) -> None:
        """Copy the keys, values and padding of the source, which has to exist.

        *bias* is the padding as an additive mask, (B, 1, 1, S'), or None.
        """
        for attention, parts in self.sources:
            for name, x in attention._get_input_buffer(state).items():
                parts[name][: x.size(0), :, : x.size(2)].copy_(x)
                length = x.size(2)
        self.source_bias.fill_(float("-inf"))[..., :length] = 0.0
        if bias is not None:
            self.source_bias[: bias.size(0), ..., : bias.size(3)].copy_(bias)
