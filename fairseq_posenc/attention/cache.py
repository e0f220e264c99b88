"""The cache of incremental decoding: keys and values of the tokens so far.

fairseq keeps keys and values as tensors (B, H, S, D) in its incremental state.  Here they are views
of larger memory, so that keys of new tokens are written after earlier keys, which are not copied.
If other code replaces the tensors, the next step copies the replacements into new memory.
"""

from typing import Any, Dict, List, Optional, Tuple, cast

import torch
from torch import Tensor

from fairseq_posenc.basics.versions import in_graph
from fairseq_posenc.flags.options import Layer

IncrementalState = Optional[Dict[str, Dict[str, Optional[Tensor]]]]
Parts = Dict[str, Tensor]
_Kind = Tuple[int, int, torch.dtype]  # heads, channels and type
_Spare = Dict[Tuple[_Kind, Optional[int]], Tensor]  # by kind and size of the window

# names in the incremental state: STATE is fairseq's, the others are ours
STATE, _BUFFERS, TERMS = "attn_state", "buffers", "position_terms"
_SPARE = "spare_memory"
#: Name, in the incremental state, of the number of hypotheses (consecutive rows) per sentence.
BEAM = "beam"
#: Name, in the incremental state, of the index (1, ) of the new token; if a state has it, the
#: state's tensors have room for later tokens and do not move in memory.
COLUMN = "column"
_BLOCK = 64  # tokens
_ALWAYS = 2**62  # number of tokens that a hypothesis shares with itself: all
_TRACKED = 512  # with more hypotheses, shared tokens are not tracked


class KeyValueBuffers:
    """Memory of the cache of one layer, with room for further tokens.

    Parts of one kind (heads, channels and type) share one tensor (parts, B, H, room, D), which one
    operation reorders.  Each part is contiguous, because interleaved channels take twice as long to
    read.

    Hypotheses of a beam search share most of their tokens.  On a CPU, the number of leading tokens
    that each pair shares is tracked, so that reordering copies only later tokens.  On a GPU it is
    not tracked, because the host would have to wait for the order.  If most tokens would have to be
    copied, all are copied to the decoder's spare memory, which is exchanged for the layer's memory.

    Args:
        parts: keys, values and other tensors of the tokens so far, (B, H, S, D) each.
        spare: unused memory, which the layers of a decoder share.
        keep: the number of earlier tokens to keep when new ones are added, or None for all.  The
            kept tokens move back to the beginning of the memory when they reach its end.
    """

    def __init__(self, parts: Parts, spare: _Spare, keep: Optional[int] = None) -> None:
        first = next(iter(parts.values()))
        self.keep, self.spare = keep, spare
        #: numbers of tokens: so far, before the first kept token, before the start of the memory
        self.length = self.first = self.base = 0
        self.views: Parts = {}
        #: names of the parts in each memory, in order
        self.names: Dict[_Kind, List[str]] = {}
        for name, x in parts.items():
            self.names.setdefault((x.size(1), x.size(3), x.dtype), []).append(name)
        rows = first.size(0)
        self.memory: Dict[_Kind, Tensor] = {
            (heads, size, dtype): first.new_empty(len(names), rows, heads, 0, size, dtype=dtype)
            for (heads, size, dtype), names in self.names.items()
        }
        #: number of leading tokens that each pair of hypotheses shares, (B, B); None if untracked
        self.shared: Optional[Tensor] = None
        if not first.is_cuda and rows <= _TRACKED:
            self.shared = first.new_zeros((rows, rows), dtype=torch.int64).fill_diagonal_(_ALWAYS)
        self._grow(first.size(2))
        self.append(parts)

    def _grow(self, length: int) -> None:
        """Allocate memory for *length* tokens and a quarter more, so that copies stay rare."""
        capacity, kept = length + max(_BLOCK, length // 4), self.length - self.first
        for kind, old in self.memory.items():
            memory = old.new_empty(*old.shape[:3], capacity, old.size(4))
            memory.narrow(3, 0, kept).copy_(old.narrow(3, self.first - self.base, kept))
            self.memory[kind] = memory
        self.base = self.first

    def _show(self) -> None:
        window = (3, self.first - self.base, self.length - self.first)
        for kind, memory in self.memory.items():
            self.views.update(zip(self.names[kind], memory.narrow(*window).unbind(0)))

    def takes(self, parts: Parts, saved: Parts) -> bool:
        """True if *saved* are views of this memory, to which *parts* can be appended."""
        return all(
            saved.get(name) is self.views.get(name)
            and x.size(0) == saved[name].size(0)
            and x.dtype == saved[name].dtype
            and writable(saved[name])
            for name, x in parts.items()
        )

    def append(self, parts: Parts) -> None:
        """Write *parts*, (B, H, T, D) each, after the tokens so far."""
        new = next(iter(parts.values())).size(2)
        if self.keep is not None:
            self.first = max(self.first, self.length - self.keep)
        if self.length - self.base + new > next(iter(self.memory.values())).size(3):
            self._grow(self.length - self.first + new)
        self.length += new
        self._show()
        for name, x in parts.items():
            self.views[name].narrow(2, self.length - self.first - new, new).copy_(x)

    def reorder(self, order: Tensor) -> None:
        """Replace row i by row ``order[i]``; *order* is (B', ), and B' may differ from B."""
        start, rows = 0, order.size(0)
        if self.shared is not None:
            if rows == self.shared.size(0):
                start = int(self.shared.gather(1, order.long().unsqueeze(1)).min())
            shared = self.shared.index_select(0, order).index_select(1, order)
            self.shared = shared.clamp_(max=self.length).fill_diagonal_(_ALWAYS)
        if start >= self.length:
            return
        begin = max(start, self.first)
        in_place = 2 * (self.length - begin) < self.length - self.first
        if not in_place:
            begin = self.first
        window = (3, begin - self.base, self.length - begin)
        for kind, memory in self.memory.items():
            other = self.spare.pop((kind, self.keep), None)
            shape = torch.Size((memory.size(0), rows, *memory.shape[2:]))
            if other is None or other.shape != shape or not writable(other):
                other = memory.new_empty(shape)
            moved = torch.index_select(memory.narrow(*window), 1, order, out=other.narrow(*window))
            if in_place:
                memory.narrow(*window).copy_(moved)
            else:
                self.memory[kind], other = other, memory
            self.spare[kind, self.keep] = other
        self._show()


def writable(x: Tensor) -> bool:
    """True unless *x* was made in inference mode and inference mode is now off."""
    return not x.is_inference() or torch.is_inference_mode_enabled()


def updates_in_place(parts: Parts) -> bool:
    """True if the cache can be updated in place: no gradients, no export, no compilation."""
    return not (in_graph() or any(x.requires_grad for x in parts.values()))


def append_to_cache(
    layer: Layer, new: Parts, incremental_state: IncrementalState, keep: Optional[int] = None
) -> Parts:
    """Add *new* to the cache of *layer*; returns the tensors of all tokens, (B, H, S, D) each.

    *new* has the tensors of the new tokens by name, (B, H, T, D) each; *keep* is the number of
    earlier tokens to keep, or None for all.
    """
    saved = layer.get_incremental_state(incremental_state, STATE)
    column: Any = None if incremental_state is None else incremental_state.get(COLUMN)
    if column is not None:
        for name, x in new.items():
            saved[name].index_copy_(2, column, x)
        return dict(saved)
    if updates_in_place(new):
        buffers: Any = layer.get_incremental_state(incremental_state, _BUFFERS)
        if buffers is not None and buffers.takes(new, saved or {}):
            buffers.append(new)
        else:
            spare: Any = cast(Dict[str, Any], incremental_state).setdefault(_SPARE, {})
            buffers = KeyValueBuffers(
                new if saved is None else _joined(saved, new, keep), spare, keep
            )
        layer.set_incremental_state(incremental_state, _BUFFERS, buffers)
        new = dict(buffers.views)
    elif saved is not None:
        new = _joined(saved, new, keep)
    layer.set_incremental_state(incremental_state, STATE, new)
    return new


def _joined(saved: Parts, new: Parts, keep: Optional[int]) -> Parts:
    start = 0 if keep is None else max(0, next(iter(saved.values())).size(2) - keep)
    return {name: torch.cat((saved[name][:, :, start:], x), dim=2) for name, x in new.items()}


def counted(like: Tensor, number: int) -> Tensor:
    """An empty tensor (B, S, 0), with S = *number* and as many rows as *like*.

    A cache that lacks the keys of some tokens stores such a tensor, whose size counts all tokens.
    """
    return like.as_strided((len(like), number, 0), (1, 1, 1))


def take_cache(layer: Layer, incremental_state: Dict[str, Any]) -> Parts:
    """Remove the cache of *layer*, which must exist, from *incremental_state*, and return it."""
    for name in (_BUFFERS, TERMS):
        incremental_state.pop(layer._get_full_incremental_state_key(name), None)
    return incremental_state.pop(layer._get_full_incremental_state_key(STATE))


def cached_length(layer: Layer, incremental_state: IncrementalState) -> int:
    """Number of tokens in the cache of *layer*."""
    saved = layer.get_incremental_state(incremental_state, STATE)
    if not saved:
        return 0
    return saved["prev_tokens"].size(1) if "prev_tokens" in saved else saved["prev_key"].size(2)


def reorder_cache(layer: Layer, incremental_state: IncrementalState, new_order: Tensor) -> None:
    """Replace row i of the cache of *layer* by row ``new_order[i]``; *new_order* is (B', )."""
    saved = layer.get_incremental_state(incremental_state, STATE)
    if not saved:
        return
    buffers: Any = layer.get_incremental_state(incremental_state, _BUFFERS)
    if buffers is not None and buffers.takes(saved, saved):
        buffers.reorder(new_order)
        new = dict(buffers.views)
    else:
        new = reordered(saved, new_order)
    layer.set_incremental_state(incremental_state, STATE, new)


def reordered(parts: Parts, order: Tensor) -> Parts:
    """*parts* (B, …) with row i replaced by row ``order[i]``; empty tensors are not read."""
    return {
        name: x.index_select(0, order)
        if x.numel()
        else x.as_strided((len(order), *x.shape[1:]), x.stride())
        for name, x in parts.items()
    }
