"""Keys and values of the tokens so far, kept between decoding steps.

fairseq keeps them as tensors (B, H, S, D) in its incremental state.  Here they are views of larger
memory, so that a new token is written behind the others instead of copying them all.  Whatever
else replaces these tensors may do so: they are copied into memory of their own at the next token.
"""

from typing import Any, Dict, Optional, Tuple

import torch
from torch import Tensor

from fairseq_posenc.options import Layer
from fairseq_posenc.versions import is_compiling

IncrementalState = Optional[Dict[str, Dict[str, Optional[Tensor]]]]
Parts = Dict[str, Tensor]

_STATE, _BUFFERS = "attn_state", "buffers"  # keys in the incremental state; fairseq's, and ours
_BLOCK = 64  # tokens
_ALWAYS = 2**62  # of a hypothesis and itself


class KeyValueBuffers:
    """Memory of the cache of one layer, with room for further tokens.

    Hypotheses of a beam search have most of their past in common.  On a CPU it is noted how many
    leading tokens each two of them share, so that reordering moves only what follows; on a GPU the
    host would have to wait for the order.

    Args:
        parts: keys, values and others of the tokens so far, (B, H, S, D) each.
    """

    def __init__(self, parts: Parts) -> None:
        first = next(iter(parts.values()))
        self.length = 0
        self.views: Parts = {name: x.narrow(2, 0, 0) for name, x in parts.items()}
        self.buffers: Parts = {}
        #: leading tokens that hypotheses share, (B, B), where known
        self.shared: Optional[Tensor] = None
        # is_cuda is also true where a GPU's work is counted on a CPU
        if first.device.type == "cpu" and not first.is_cuda:
            rows = first.size(0)
            self.shared = torch.zeros(rows, rows, dtype=torch.int64).fill_diagonal_(_ALWAYS)
        self._grow(first.size(2))
        self.append(parts)

    def _grow(self, length: int) -> None:
        """Take memory for *length* tokens and a quarter more, so that copies stay rare."""
        capacity = length + max(_BLOCK, length // 4)
        for name, old in self.views.items():
            buffer = old.new_empty(old.size(0), old.size(1), capacity, old.size(3))
            buffer.narrow(2, 0, self.length).copy_(old)
            self.buffers[name] = buffer

    def _show(self) -> None:
        self.views = {name: x.narrow(2, 0, self.length) for name, x in self.buffers.items()}

    def takes(self, parts: Parts, saved: Parts) -> bool:
        """True if *saved* are the views of this memory, and *parts* can be appended to them."""
        return all(
            saved.get(name) is self.views.get(name)
            and x.size(0) == saved[name].size(0)
            and x.dtype == saved[name].dtype
            and writable(saved[name])
            for name, x in parts.items()
        )

    def append(self, parts: Parts) -> None:
        """Write *parts*, (B, H, T, D) each, behind the tokens so far."""
        start, new = self.length, next(iter(parts.values())).size(2)
        if start + new > next(iter(self.buffers.values())).size(2):
            self._grow(start + new)
        self.length = start + new
        for name, x in parts.items():
            self.buffers[name].narrow(2, start, new).copy_(x)
        self._show()

    def reorder(self, order: Tensor) -> None:
        """Let row i hold what row ``order[i]`` held.

        Args:
            order: (B', ), integers; B' may differ from B.
        """
        start, rows = 0, order.size(0)
        if self.shared is not None:
            if rows == self.shared.size(0):
                start = int(self.shared.gather(1, order.long().unsqueeze(1)).min())
            shared = self.shared.index_select(0, order).index_select(1, order)
            self.shared = shared.clamp_(max=self.length).fill_diagonal_(_ALWAYS)
        if start >= self.length:
            return
        for name, buffer in self.buffers.items():
            used = buffer.narrow(2, start, self.length - start)
            if start:
                used.copy_(used.index_select(0, order))
            else:
                fresh = buffer.new_empty(rows, *buffer.shape[1:])
                torch.index_select(used, 0, order, out=fresh.narrow(2, 0, self.length))
                self.buffers[name] = fresh
        self._show()


def writable(x: Tensor) -> bool:
    """True unless *x* was made in inference mode and this is not."""
    return not x.is_inference() or torch.is_inference_mode_enabled()


def updates_in_place(parts: Parts) -> bool:
    """True if the cache can be updated in place: no gradients, no export, no compilation."""
    if torch.jit.is_tracing() or is_compiling():
        return False
    return not any(x.requires_grad for x in parts.values())


def append_to_cache(
    layer: Layer, k: Tensor, v: Tensor, content_k: Tensor, incremental_state: IncrementalState
) -> Tuple[Tensor, Tensor, Tensor]:
    """Keys, values and untransformed keys of all tokens so far, (B, H, S, D or e).

    Untransformed keys are cached only if content-dependent terms need them in addition to the
    transformed ones.  Beam search reorders the cache.

    Args:
        layer: the attention; fairseq keeps a separate cache for each instance.
        k: keys of the new tokens, (B, H, T, D).
        v: values, (B, H, T, D or e).
        content_k: keys before the position transform, (B, H, T, D).
        incremental_state: fairseq's cache.
    """
    new = {"prev_key": k, "prev_value": v}
    if layer.position_terms is not None and layer.encoding.transform is not None:
        new["prev_content_key"] = content_k
    cached = append_parts(layer, new, incremental_state)
    key = cached["prev_key"]
    return key, cached["prev_value"], cached.get("prev_content_key", key)


def append_parts(layer: Layer, new: Parts, incremental_state: IncrementalState) -> Parts:
    """The cached tensors of all tokens so far, (B, H, S, D) each.

    Args:
        layer: the attention; fairseq keeps a separate cache for each instance.
        new: those of the new tokens by name, (B, H, T, D) each.
        incremental_state: fairseq's cache.
    """
    saved = layer.get_incremental_state(incremental_state, _STATE)
    if updates_in_place(new):
        buffers: Any = layer.get_incremental_state(incremental_state, _BUFFERS)
        if saved is None:
            buffers = KeyValueBuffers(new)
        elif buffers is not None and buffers.takes(new, saved):
            buffers.append(new)
        else:
            buffers = KeyValueBuffers(_joined(saved, new))
        layer.set_incremental_state(incremental_state, _BUFFERS, buffers)
        new = dict(buffers.views)
    elif saved is not None:
        new = _joined(saved, new)
    layer.set_incremental_state(incremental_state, _STATE, new)
    return new


def _joined(saved: Parts, new: Parts) -> Parts:
    return {name: torch.cat((saved[name], x), dim=2) for name, x in new.items()}


def reorder_cache(layer: Layer, incremental_state: IncrementalState, new_order: Tensor) -> None:
    """Reorder the cache of *layer* along with the hypotheses of a beam search.

    Args:
        layer: the attention.
        incremental_state: fairseq's cache.
        new_order: for every row the one whose past it continues, (B', ).
    """
    saved = layer.get_incremental_state(incremental_state, _STATE)
    if not saved:
        return
    buffers: Any = layer.get_incremental_state(incremental_state, _BUFFERS)
    if buffers is not None and buffers.takes(saved, saved):
        buffers.reorder(new_order)
        new = dict(buffers.views)
    else:
        new = {name: x.index_select(0, new_order) for name, x in saved.items()}
    layer.set_incremental_state(incremental_state, _STATE, new)
