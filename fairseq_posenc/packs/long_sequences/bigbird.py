"""BigBird: a window of blocks, global blocks, and random blocks.

Zaheer et al., arXiv 2007.14062, section 2 and appendix D.  The sequence is split into blocks of b
tokens.  A block of queries sees

- itself and its neighbours, w blocks in all; in causal attention, itself and w - 1 earlier blocks,
- the first g blocks, which are global: their queries see all keys (if causal, all earlier keys),
- r blocks drawn at random from the others.

All heads of a layer share the random blocks, but layers differ.  A checkpoint holds a random number
for every block of queries and every draw.  This number, as a fraction u in [0, 1), selects block
⌊u·n⌋ of the n blocks that the queries may see but do not see yet.  In causal attention only earlier
blocks are drawn, so the pattern depends on a token's position and not on the length of the text.
The cache holds all keys, as later queries may draw any block; a step reads a fixed number of keys.
"""

from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Tuple

import torch
from torch import Tensor

from fairseq_posenc.attention.base import AttentionKernel, register_attention
from fairseq_posenc.attention.blocks import Blocks, pair_bias
from fairseq_posenc.attention.cache import IncrementalState, Parts, append_to_cache
from fairseq_posenc.attention.functional import Batch, product_dtype
from fairseq_posenc.attention.grouped import HeadFlags
from fairseq_posenc.attention.linear.random_features import generator_of
from fairseq_posenc.attention.sparse import SparseAttention
from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.encodings import Encoding, PositionEncoding, Stack
from fairseq_posenc.encodings.base import Places
from fairseq_posenc.flags.options import Options, option
from fairseq_posenc.flags.settings import setting

#: Number of query blocks with random numbers of their own; later blocks repeat these numbers.
ROWS = 1024
_BITS = 31


@dataclass
class BigBirdFlags(HeadFlags):
    """Flags of BigBird."""

    bigbird_block_size: Optional[int] = setting(
        64, "tokens in a block of --attention bigbird", at_least=1, at_most=4096
    )
    bigbird_window_blocks: Optional[int] = setting(
        3,
        "blocks in the window, an odd number: the block of the query, and equally many blocks on "
        "each side of it (in causal attention, all other blocks are before it)",
        at_least=1,
        at_most=1023,
    )
    bigbird_global_blocks: Optional[int] = setting(
        1,
        "global blocks at the start: all queries see them, and their queries see all keys",
        at_least=0,
        at_most=64,
    )
    bigbird_random_blocks: Optional[int] = setting(
        3, "random blocks that a block of queries sees", at_least=0, at_most=64
    )
    bigbird_seed: Optional[int] = setting(
        1,
        "seed of the random blocks, which the checkpoint keeps",
        role="training",
        needs={"bigbird_random_blocks": None},
    )


def draw_blocks(
    shares: Tensor, block: Tensor, first: int, around: Tuple[int, int], count: Tensor
) -> Tensor:
    """Draw blocks of keys for blocks of queries, without repetition.

    >>> shares = torch.tensor([[0, 2**31 - 1]])
    >>> draw_blocks(shares, torch.tensor([[2]]), 1, (1, 1), torch.tensor(7))
    tensor([[[4, 6]]])
    >>> draw_blocks(shares, torch.tensor([[2]]), 1, (1, 1), torch.tensor(5))
    tensor([[[ 4, -1]]])

    Args:
        shares: random numbers below 2^31, (rows, r).
        block: indices of the blocks of queries, (1|B, N).
        first: index of the first block that is not global.
        around: how many blocks the window has before and after the block of the query.
        count: only blocks with indices below this one are drawn, (1|B, 1|N).

    Returns:
        indices of the drawn blocks, (1|B, N, r), -1 where there are not enough blocks.
    """
    low = (block - around[0]).clamp(min=first)
    seen = (torch.minimum(block + around[1], count - 1) - low + 1).clamp(min=0)
    order = torch.arange(shares.size(1), device=block.device)
    # blocks to draw from, (1|B, N, r)
    left = ((count - first).clamp(min=0) - seen).unsqueeze(-1) - order
    places = (shares[block % len(shares)].long() * left.clamp(min=0)) >> _BITS
    for k in range(1, shares.size(1)):
        # skip one block for each earlier draw at or before this index
        earlier = places[..., :k].sort(dim=-1).values - order[:k]
        places[..., k] += (earlier <= places[..., k : k + 1]).sum(dim=-1)
    drawn = places + first
    drawn = drawn + (drawn >= low.unsqueeze(-1)) * seen.unsqueeze(-1)
    return drawn.masked_fill(left <= 0, -1)


@register_attention(
    "bigbird",
    paper="Zaheer et al. 2020, arXiv 2007.14062",
    summary="softmax over a window of blocks, global blocks and random blocks",
    flags=BigBirdFlags,
)
class BigBirdAttention(SparseAttention):
    """Window, global and random blocks; arguments as for softmax attention."""

    random_blocks: Tensor

    def __init__(
        self, embed_dim: int, num_heads: int, encoding: PositionEncoding, **kwargs: object
    ) -> None:
        super().__init__(embed_dim, num_heads, encoding, **kwargs)
        options = encoding.options
        self.size, self.draws = options.bigbird_block_size, options.bigbird_random_blocks
        self.first = int(options.bigbird_global_blocks)
        self.global_tokens = self.first * self.size
        self.seed, self.side = int(options.bigbird_seed), encoding.stack.side
        side = options.bigbird_window_blocks // 2
        self.both_blocks = Blocks(self.size, side, side)
        self.causal_blocks = Blocks(self.size, 2 * side, 0)
        self.register_buffer("random_blocks", torch.empty(ROWS, self.draws, dtype=torch.int32))
        self.set_layer(0, self)

    @classmethod
    def check(cls, options: Options, encodings: List[Encoding], stacks: List[Stack]) -> None:
        """Refuse an even window, and ``--store-ema``, which would average the random numbers."""
        if options.bigbird_window_blocks % 2 == 0:
            raise UsageError(
                f"--bigbird-window-blocks {options.bigbird_window_blocks}: must be odd, so that "
                "the block of the query is in the middle; give "
                f"{options.bigbird_window_blocks + 1}"
            )
        if option(options, "store_ema", False):
            raise UsageError(
                "--attention bigbird: --store-ema would average the random numbers of its blocks, "
                "which are integers; drop --store-ema, and average checkpoints instead"
            )

    def set_layer(self, index: int, first: AttentionKernel) -> None:
        """Draw random numbers that differ from those of the other layers of the stack."""
        source, size = generator_of(f"{self.seed} {self.side} {index}"), (ROWS, self.draws)
        self.random_blocks.copy_(torch.randint(2**_BITS, size, generator=source, device="cpu"))
        super().set_layer(index, first)
        name, variant = self.kind
        self.kind = ((name, index if self.draws else None), variant)

    def band(self, blocks: Blocks, causal: bool, device: torch.device) -> Tensor:
        """True at the visible tokens of the window: all or, if causal, all up to the query."""
        distances = blocks.distances(device)
        return distances <= 0 if causal else torch.ones_like(distances, dtype=torch.bool)

    def _drawn(self, block: Tensor, count: Tensor, causal: bool) -> Tensor:
        """The random blocks (1|B, N, r) of blocks of queries (1|B, N)."""
        blocks = self.causal_blocks if causal else self.both_blocks
        around = (blocks.before, blocks.after)
        return draw_blocks(self.random_blocks, block, self.first, around, count)

    def _choose(self, batch: Batch, visible: Tensor) -> Optional[Tensor]:
        """The random blocks of a sequence; blocks that hold only padding are not drawn."""
        if not self.draws:
            return None
        block = torch.arange(self.both_blocks.count(batch.length), device=visible.device)
        block = block.unsqueeze(0)
        if batch.causal:
            return self._drawn(block, block + 1, True)
        # padding is on the right
        last = visible.sum(dim=1, keepdim=True) + self.size - 1
        count = torch.div(last, self.size, rounding_mode="floor")  # (1|B, 1)
        return self._drawn(block, count, False)

    def _after_cache(self, batch: Batch, starts: Optional[Tensor]) -> Dict[str, Any]:
        """The bias for the keys that a single new token sees; for several tokens, for all keys."""
        new, length, device = batch.like.size(1), batch.length, batch.like.device
        queries = torch.arange(length - new, length, device=device).unsqueeze(0)  # (1|B, T)
        queries = queries if starts is None else queries - starts
        block = torch.div(queries.clamp(min=0), self.size, rounding_mode="floor")
        random = self._drawn(block, block + 1, True) if self.draws else None  # (1|B, T, r)
        chosen = None
        if new == 1:
            keys, visible = self._pattern_of(block, random)
        else:
            keys = torch.arange(length, device=device).unsqueeze(0)
            keys = keys if starts is None else keys - starts
            visible = self._mask(block, keys, random)
        visible = visible & (keys.unsqueeze(1) <= queries.unsqueeze(2)) & (keys >= 0).unsqueeze(1)
        keys = keys.clamp(min=0)
        if new == 1:
            chosen = (keys if starts is None else keys + starts).clamp(max=length - 1)
        padding, empty = batch.padding.mask, batch.padding.mask is not None
        if padding is not None:
            if chosen is not None:
                padding = padding.gather(1, chosen.expand(len(padding), -1))
            visible = visible & ~padding.unsqueeze(1)
        places, dtype = Places(queries, keys, length), product_dtype(batch.like)
        bias = pair_bias(self.encoding, places, visible, dtype)
        return {"bias": bias, "empty_rows": empty, "starts": starts, "chosen": chosen}

    def _pattern_of(self, block: Tensor, random: Optional[Tensor]) -> Tuple[Tensor, Tensor]:
        """Positions of keys that a query sees, (1|B, ·), and whether each exists, (1|B, 1, ·)."""
        inside = torch.arange(self.size, device=block.device)
        globals_ = torch.arange(self.first, device=block.device).expand(len(block), -1)
        window = block + torch.arange(-self.causal_blocks.before, 1, device=block.device)
        window = torch.where(window >= self.first, window, torch.full_like(window, -1))
        parts = [globals_, window]
        parts += [] if random is None else [random[:, 0]]
        blocks = torch.cat(parts, dim=1)  # (1|B, number)
        keys = (blocks.unsqueeze(-1) * self.size + inside).flatten(1)
        there = (blocks >= 0).repeat_interleave(self.size, dim=1)
        return keys, there.unsqueeze(1)

    def _mask(self, block: Tensor, keys: Tensor, random: Optional[Tensor]) -> Tensor:
        """Mask (1|B, T, S), True where a query's pattern includes a key; *keys* are (1|B, S)."""
        place = torch.div(keys, self.size, rounding_mode="floor").unsqueeze(1)
        visible = (place < self.first) | (place >= block.unsqueeze(2) - self.causal_blocks.before)
        for drawn in random.unbind(dim=2) if random is not None else ():
            visible = visible | (place == drawn.unsqueeze(2))
        return visible

    def _extend(
        self, new: Parts, prepared: Mapping[str, Any], state: IncrementalState
    ) -> Tuple[Tensor, Tensor]:
        """All keys and values so far or, for a single query, the keys and values that it sees."""
        parts, chosen = append_to_cache(self, new, state), prepared["chosen"]
        k, v = parts["prev_key"], parts["prev_value"]
        if chosen is None:
            return k, v
        if len(chosen) == 1:
            return k.index_select(2, chosen[0]), v.index_select(2, chosen[0])
        index = chosen[:, None, :, None].expand(-1, k.size(1), -1, k.size(3))
        return k.gather(2, index), v.gather(2, index)

    def _load_from_state_dict(self, state: Dict[str, Tensor], prefix: str, *args: Any) -> None:
        """Load the random numbers of a checkpoint; if it has none, keep those from the seed."""
        saved = state.setdefault(f"{prefix}random_blocks", self.random_blocks.clone())
        if saved.shape != self.random_blocks.shape:
            raise UsageError(
                f"--bigbird-random-blocks {self.draws}: the checkpoint was trained with "
                f"{saved.size(1)} ({prefix}random_blocks); give --bigbird-random-blocks "
                f"{saved.size(1)}"
            )
        super()._load_from_state_dict(state, prefix, *args)
