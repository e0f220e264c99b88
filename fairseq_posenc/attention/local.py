"""Local attention: a window that slides over the sequence, and a few global tokens.

Longformer, Beltagy, Peters, Cohan, arXiv 2004.05150, section 3.1.  A window of w tokens with
dilation d reaches from i - d·w/2 to i + d·w/2 for query i, in causal attention from i - d·w to i.
The first G tokens are global: all queries see them, and they see all keys, through separate query,
key and value projections.  In causal attention, global tokens see no later keys and have no
separate projections.
"""

import copy
import logging
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Tuple

import torch
from torch import Tensor

from fairseq_posenc.attention.base import AttentionKernel, register_attention
from fairseq_posenc.attention.blocks import Blocks, pair_bias
from fairseq_posenc.attention.cache import (
    IncrementalState,
    Parts,
    append_to_cache,
    counted,
    reorder_cache,
    reordered,
)
from fairseq_posenc.attention.functional import Batch, product_dtype
from fairseq_posenc.attention.grouped import HeadFlags
from fairseq_posenc.attention.sparse import SparseAttention
from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.encodings import Encoding, PositionEncoding, Stack
from fairseq_posenc.encodings.base import Places
from fairseq_posenc.flags.by_layer import split_pattern
from fairseq_posenc.flags.options import SIDES, Options, option
from fairseq_posenc.flags.settings import setting

logger = logging.getLogger(__name__)

#: Bounds of the tokens in a block: smaller blocks are slow, larger ones are mostly masked.
BLOCK_SIZES = (16, 256)
_MOST = 2**31 - 1  # largest window, and largest dilation
_GLOBAL = "global_tokens"  # name in the incremental state
_PROJECTIONS = ("q_proj", "k_proj", "v_proj")


@dataclass
class LocalFlags(HeadFlags):
    """Flags of local attention."""

    local_window: Optional[str] = setting(
        "512",
        "number of tokens, in addition to its own, that a query of --attention local sees: half of "
        "them on each side, or in causal attention all of them before it; an even number, or a "
        "pattern over the layers, such as 32,64,128 or 64*3,1024",
    )
    local_dilation: Optional[str] = setting(
        "1",
        "distance between adjacent tokens of the window: a number, or a pattern over the layers, "
        "such as 1,1,2,4",
    )
    local_global_tokens: Optional[int] = setting(
        0,
        "number of global tokens at the start of a text, such as 1 for [CLS]: all queries see them "
        "and, in bidirectional attention, they see all keys, through separate projections",
        at_least=0,
        at_most=4096,
    )
    local_global_first_text: Optional[int] = setting(
        0,
        "largest number of global tokens in the first text of a pair, such as the question of a "
        "reading task; with 0, only --local-global-tokens are global",
        role="free",
        at_least=0,
        at_most=4096,
        needs={"local_global_tokens": None},  # which adds projections
    )


def numbers(flag: str, value: str, least: int, even: bool) -> List[int]:
    """The numbers in the *value* of *flag*, a pattern over layers; refuses any other value.

    >>> numbers("--local-window", "32*2,64", 2, even=True)
    [32, 32, 64]
    """
    parts = split_pattern(str(value), flag, "32*3,64")
    for part in parts:
        valid = part.isdecimal() and least <= int(part) <= _MOST
        if not valid or (even and int(part) % 2):
            what = "even numbers" if even else "numbers"
            raise UsageError(
                f"{flag} {value}: {part!r} is refused; give {what} from {least} to {_MOST}, "
                "separated by commas: one for all layers, or one per layer"
            )
    return [int(part) for part in parts]


def numbers_by_layer(options: Options) -> Dict[str, List[int]]:
    """The windows and the dilations, by flag; each list repeats over the layers."""
    window, dilation = "--local-window", "--local-dilation"
    return {
        window: numbers(window, options.local_window, 2, even=True),
        dilation: numbers(dilation, options.local_dilation, 1, even=False),
    }


@register_attention(
    "local",
    paper="Beltagy et al. 2020, arXiv 2004.05150",
    summary="softmax over a sliding window and a few global tokens (Longformer)",
    flags=LocalFlags,
)
class LocalAttention(SparseAttention):
    """Sliding-window attention; the arguments are those of :class:`.MultiheadKernel`."""

    def __init__(
        self, embed_dim: int, num_heads: int, encoding: PositionEncoding, **kwargs: object
    ) -> None:
        super().__init__(embed_dim, num_heads, encoding, **kwargs)
        options = encoding.options
        self.always_global = int(options.local_global_tokens)
        self.global_tokens = max(self.always_global, int(options.local_global_first_text))
        self.reads_first_text = bool(options.local_global_first_text)
        self.causal = encoding.stack.causal
        self.has_projections = bool(self.global_tokens) and not self.causal
        for name in _PROJECTIONS if self.has_projections else ():
            setattr(self, f"global_{name}", copy.deepcopy(getattr(self, name)))
        self.windows, self.dilations = numbers_by_layer(options).values()
        self.set_layer(0, self)

    @classmethod
    def check(cls, options: Options, encodings: List[Encoding], stacks: List[Stack]) -> None:
        """Refuse invalid or too many windows or dilations, and global first texts if causal."""
        first = options.local_global_first_text
        if first and option(options, "causal", True):
            raise UsageError(
                f"--local-global-first-text {first}: is for pairs of texts in bidirectional masked "
                "language models; drop it, or give --arch posenc_masked_lm"
            )
        layers = max(option(options, f"{side}_layers") or 0 for side in SIDES)
        for flag, values in numbers_by_layer(options).items():
            if len(values) > max(layers, 1):
                raise UsageError(
                    f"{flag} {','.join(map(str, values))}: has {len(values)} numbers for {layers} "
                    "layers; give one number, or at most one per layer"
                )

    def set_layer(self, index: int, first: AttentionKernel) -> None:
        """Choose the window and the dilation of layer *index*."""
        window = self.windows[index % len(self.windows)]
        dilation = self.dilations[index % len(self.dilations)]
        self.before, self.dilation = window, dilation
        # a decoder under --full-context-alignment sees as far ahead as back
        self.either_side = window if self.causal else window // 2
        size = min(max(window // 2, BLOCK_SIZES[0]), BLOCK_SIZES[1])
        around = -(-self.either_side // size)
        self.both_blocks = Blocks(size, around, around, dilation)
        self.causal_blocks = Blocks(size, -(-window // size), 0, dilation)
        super().set_layer(index, first)
        name, variant = self.kind
        self.kind = ((name, window, dilation), variant)

    def band(self, blocks: Blocks, causal: bool, device: torch.device) -> Tensor:
        """Mask (L, K), True where a key is in the window of a query of the block."""
        distances = blocks.distances(device)
        before = self.before if causal else self.either_side
        after = 0 if causal else self.either_side
        return (distances >= -before * self.dilation) & (distances <= after * self.dilation)

    def _after_cache(self, batch: Batch, starts: Optional[Tensor]) -> Dict[str, Any]:
        """Arguments for new tokens; the keys of ``bias`` are global tokens, then the window."""
        new, length, device = batch.like.size(1), batch.length, batch.like.device
        first = length - min(length, self.before * self.dilation + new)
        index = torch.arange(first, length, device=device)
        if new == 1:
            index = index[self._steps(len(index))]
        prepared = {"bias": None, "empty_rows": False, "starts": starts, "chosen": None}
        padding, places = batch.padding.mask, self.global_tokens
        biased = padding is not None or self.encoding.shared_bias is not None or new > 1
        if not biased and (first >= places or not places):
            return prepared  # all keys are visible
        queries = torch.arange(length - new, length, device=device).unsqueeze(0)  # (1|B, T)
        keys = index.unsqueeze(0)  # (1|B, ·)
        if starts is not None:
            queries, keys = queries - starts, keys - starts
        distances = keys.unsqueeze(1) - queries.unsqueeze(2)  # (1|B, T, ·)
        reach = self.before * self.dilation
        visible = (distances <= 0) & (distances >= -reach) & (distances % self.dilation == 0)
        visible = visible & (keys >= places).unsqueeze(1)
        if padding is not None:
            visible = visible & ~padding[:, index].unsqueeze(1)
        if places:
            slots = torch.arange(places, device=device).unsqueeze(0)
            to_slots = (slots.unsqueeze(1) <= queries.unsqueeze(2)).expand(len(visible), -1, -1)
            visible = torch.cat((to_slots, visible), dim=2)
            keys = torch.cat((slots.expand(len(keys), -1), keys), dim=1)
        dtype = product_dtype(batch.like)
        bias = pair_bias(self.encoding, Places(queries, keys, length), visible, dtype)
        return {**prepared, "bias": bias, "empty_rows": padding is not None}

    def _steps(self, length: int) -> slice:
        """Indices of the tokens that the last of *length* tokens sees in its window."""
        return slice((length - 1) % self.dilation, None, self.dilation)

    def _global_heads(
        self, x: Tensor, heads: Tuple[Tensor, ...], tables: Mapping[str, Any]
    ) -> Tuple[Tensor, ...]:
        """Queries, keys and values from projections of global tokens, (B, H, T, D) each."""
        if not self.has_projections:
            return heads
        projections = [getattr(self, f"global_{name}") for name in _PROJECTIONS]
        return self.project(x, tables, projections=projections)[:3]

    def _start(self, new: Parts, starts: Optional[Tensor], state: IncrementalState) -> None:
        """Begin the cache with the global tokens and the tokens of the last window."""
        keep = self.before * self.dilation
        append_to_cache(self, {name: x[:, :, -keep:] for name, x in new.items()}, state, keep)
        shape = (self.global_tokens, self.head_dim)
        none = {name: x.new_zeros(*x.shape[:2], *shape) for name, x in new.items()}
        self._keep_global(none, new, starts, state)

    def _extend(
        self, new: Parts, prepared: Mapping[str, Any], state: IncrementalState
    ) -> Tuple[Tensor, Tensor]:
        """Cache *new*; returns keys and values of global tokens and window, (B, H, ·, D) each."""
        saved: Any = self.get_incremental_state(state, _GLOBAL)
        saved = self._keep_global(saved, new, prepared["starts"], state)
        parts = append_to_cache(self, new, state, self.before * self.dilation)
        seen, values = parts["prev_key"], parts["prev_value"]
        if new["prev_key"].size(2) == 1 and self.dilation > 1:
            steps = self._steps(seen.size(2))
            seen, values = seen[:, :, steps], values[:, :, steps]
        if self.global_tokens:
            seen = torch.cat((saved["prev_key"], seen), dim=2)
            values = torch.cat((saved["prev_value"], values), dim=2)
        return seen, values

    def _keep_global(
        self, saved: Parts, new: Parts, starts: Optional[Tensor], state: IncrementalState
    ) -> Parts:
        """Store keys and values of new tokens that are global, and the number of tokens so far."""
        k, places, seen = new["prev_key"], self.global_tokens, self.cached_length(state)
        length = seen + k.size(2)
        saved = {**saved, "tokens": counted(k, length)}
        if places and (seen < places or starts is not None):
            positions = torch.arange(seen, length, device=k.device).unsqueeze(0)
            positions = positions if starts is None else positions - starts  # (1|B, T)
            is_at = positions.unsqueeze(1) == torch.arange(places, device=k.device).view(1, -1, 1)
            present, which = is_at.any(dim=2)[:, None, :, None], is_at.long().argmax(dim=2)
            for name, x in new.items():
                index = which[:, None, :, None].expand(*saved[name].shape)
                saved[name] = torch.where(present, x.gather(2, index), saved[name])
        self.set_incremental_state(state, _GLOBAL, saved)
        return saved

    def cached_length(self, incremental_state: IncrementalState) -> int:
        """Number of tokens so far, including those that the cache no longer holds."""
        saved = self.get_incremental_state(incremental_state, _GLOBAL)
        return saved["tokens"].size(1) if saved else 0

    def reorder_incremental_state(
        self, incremental_state: IncrementalState, new_order: Tensor
    ) -> None:
        """Reorder the cache along with the hypotheses of a beam search."""
        saved: Any = self.get_incremental_state(incremental_state, _GLOBAL)
        if saved:
            reorder_cache(self, incremental_state, new_order)
            saved = reordered(saved, new_order)
            self.set_incremental_state(incremental_state, _GLOBAL, saved)

    def _load_from_state_dict(self, state: Dict[str, Tensor], prefix: str, *args: Any) -> None:
        """If a checkpoint has no projections of global tokens, copy them from the usual ones."""
        if self.has_projections and f"{prefix}global_q_proj.weight" not in state:
            for key in [key for key in state if key.startswith(prefix)]:
                if key[len(prefix) :].partition(".")[0] in _PROJECTIONS:
                    state[f"{prefix}global_{key[len(prefix) :]}"] = state[key].clone()
            logger.warning("warm start: %sglobal_{q,k,v}_proj are copies of {q,k,v}_proj", prefix)
        super()._load_from_state_dict(state, prefix, *args)

    def extra_repr(self) -> str:
        window = f"window={self.before}, dilation={self.dilation}, global={self.global_tokens}"
        return f"{super().extra_repr()}, {window}"
