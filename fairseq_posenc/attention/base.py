"""Self-attention kernels: their interface, the positions and masks they receive, their registry."""

from dataclasses import dataclass
from typing import Any, Callable, Hashable, List, NamedTuple, Optional, Tuple, TypedDict, Union

from fairseq.incremental_decoding_utils import FairseqIncrementalState
from fairseq.modules import MultiheadAttention as StockMultiheadAttention
from fairseq.modules.fairseq_dropout import FairseqDropout
from torch import Tensor, nn

from fairseq_posenc.attention import cache
from fairseq_posenc.attention.joint import JointProjections
from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.encodings import PositionEncoding
from fairseq_posenc.encodings.base import Encoding
from fairseq_posenc.encodings.bias_sum import SharedBiasSum
from fairseq_posenc.flags.options import Options, option
from fairseq_posenc.flags.registry import ClassRegistry
from fairseq_posenc.flags.settings import setting

ATTENTIONS = ClassRegistry("--attention")
#: Decorates a subclass of :class:`AttentionKernel`.
register_attention = ATTENTIONS.register


def traceable() -> List[str]:
    """The values of ``--attention`` whose traced graph serves texts of every length."""
    return [name for name, entry in ATTENTIONS.items() if entry.thing.abilities.traceable]


@dataclass
class AttentionFlags:
    """The flag of self-attention."""

    attention: Optional[str] = setting(
        "softmax",
        "self-attention: {choices}; all but softmax are linear in sequence length. In linear "
        "attention --attention-dropout drops keys for all queries of a head. Attention to the "
        "source is always softmax",
        role="model",
        choices=ATTENTIONS,
        needs={"layer": ("transformer",)},
        traceable=traceable,
    )


class Positions(TypedDict, total=False):
    """Positions and masks of one forward, the same for all layers of one composition.

    The stack computes them, layers pass them on as ``**positions``, and only the attention unpacks
    them.  They are bare tensors, because fairseq's activation checkpointing does not see tensors
    inside other objects.

    Args:
        bias: masks and content-free logits, (1|B, 1|H, 1|T, S), or None.
        causal: whether the attention has to hide later keys; False if *bias* does so.
        empty_rows: whether a query may see no key at all.
        length_factor: a factor on products with queries, computed from the number of keys that
            each query sees, (1|B, 1, 1|T, 1), float32, or one number for all queries; for kernels
            that ask for it.
        table: table of the transform, such as rotations, for the new positions, or None.
        key_table: table of the transform for the positions of *keys*.
        keys: input for keys and values, (B, S, C), where queries have another: with a memory, or
            where queries are pooled; for kernels that take it.
        step: distance between neighbouring queries, in keys; 2 where they are pooled.
        query_positions: (1|B, T), for kernels that read positions and content-dependent terms.
        key_positions: (1|B, S), for kernels that read *query_positions*.
        padding_mask: (B, S), True at padding, for these kernels, too; None without padding.
        distance_vectors: (N, L, H·D) for N content-dependent terms and L distances, or None.
        uneven: True if positions are not as far apart as indices; for content-dependent terms.
        global_bias: for kernels with global tokens, the bias of these as queries, (1|B, 1|H, G, S).
        global_rows: True at first tokens that are global, by blocks, (B·d, ·, L, 1, 1), or None.
        starts: for kernels with a pattern, the number of padding tokens that a sequence begins
            with, (B, 1), or None if there are none.
        chosen: for kernels with a pattern, the keys or blocks of keys that it selects.
        logits: for kernels that take them in place of *bias*, content-free logits by distance from
            -(T - 1) to T - 1, (H, 2T - 1), float32.
        blocks: a ``BlockMask`` of the visible keys, beside *logits*; its tensors have no gradient.
    """

    bias: Optional[Tensor]
    causal: bool
    empty_rows: bool
    length_factor: Union[float, Tensor]
    table: Optional[Tensor]
    key_table: Optional[Tensor]
    keys: Optional[Tensor]
    step: int
    query_positions: Optional[Tensor]
    key_positions: Optional[Tensor]
    padding_mask: Optional[Tensor]
    distance_vectors: Optional[Tensor]
    uneven: bool
    global_bias: Optional[Tensor]
    global_rows: Optional[Tensor]
    starts: Optional[Tensor]
    chosen: Optional[Tensor]
    logits: Tensor
    blocks: Any


class Tokens(NamedTuple):
    """The tokens of one forward pass, from which a kernel makes the bias of its own pattern.

    Args:
        query_length: T; queries are the last T of S tokens.
        key_length: S.
        causal: hide later keys.
        padding_mask: (B, S), True at padding, or None.
        left: whether a sequence begins with padding.
        positions: the positions of a sequence without padding on the left, (S), int64.
        reach: a number above all *positions*; S if the positions are 0, 1, 2 and so on.
        logits: the content-free logits of the encoding, or None.
        like: input of the first layer for the new tokens, (B, T, C).
        first_text: length of the first text of each pair, (B, 1), if it is global.
    """

    query_length: int
    key_length: int
    causal: bool
    padding_mask: Optional[Tensor]
    left: bool
    positions: Tensor
    reach: int
    logits: Optional[SharedBiasSum]
    like: Tensor
    first_text: Optional[Tensor] = None


@dataclass(frozen=True)
class Abilities:
    """What a self-attention kernel can do, as checks and stacks need to know; by default little.

    Args:
        hooks: where encodings may act, beside the embeddings: ``transform`` if ``forward`` applies
            ``encoding.transform``, ``shared`` if it adds *bias* to logits, ``content`` if it adds
            the terms of ``encoding.build_content_bias()``.  Encodings that act elsewhere are
            refused.
        linear_transforms: True if transforms have to be linear maps of single vectors, as rotary.
        changes_values: True if transforms, and content-dependent terms, may change the values, too.
        takes_keys: True if ``forward`` takes *keys* other than its queries.
        needs_positions: True if ``forward`` reads query_positions and key_positions.
        takes_positions: True if each sequence may have positions of its own, in any order.
        traceable: True if a traced graph serves texts of every length, so that ONNX can have it.
        bidirectional_only: why the kernel cannot hide later keys, or None if the kernel can.
        causal_apart: True if ``forward`` hides later keys by itself where *causal* is True, so that
            *bias* is (1|B, 1, 1, S) and no mask has the size of all pairs.
        causal_in_bias: True if *bias* has to hide later keys, so that *causal* is always False.
        reads_first_text: True if :meth:`.AttentionKernel.sparse_positions` reads the length of the
            first text of a pair.
        relative_after_rotation: whether rotating q and k keeps the product a function of distance.
        static_cache: how a decoding step can be done with tensors that keep their shapes: ``keys``,
            if the cache has the keys and values of all tokens so far, and *padding_mask* or *bias*
            can hide room for more behind them; ``sums``, if the cache has a constant size; or None.
        length_factor: computes the entry *length_factor* from the number of keys that each query
            sees, (1|B, 1, 1|T, 1), float32, at least 1, or one number for all; None if ``forward``
            does not read it.
        longest: name of the setting that is the greatest number of tokens, or None.
        why_longest: why there cannot be more tokens.
    """

    hooks: Tuple[str, ...] = ()
    linear_transforms: bool = False
    changes_values: bool = False
    takes_keys: bool = False
    needs_positions: bool = False
    takes_positions: bool = False
    traceable: bool = False
    bidirectional_only: Optional[str] = None
    causal_apart: bool = False
    causal_in_bias: bool = False
    reads_first_text: bool = False
    relative_after_rotation: bool = True
    static_cache: Optional[str] = None
    length_factor: Optional[Callable[[Any], Any]] = None
    longest: Optional[str] = None
    why_longest: str = ""

    def takes(self, encoding: Encoding) -> bool:
        """True if *encoding* acts where the kernel lets it act."""
        transform = encoding.transform
        if transform is not None and self.linear_transforms and not transform.applies_to_features:
            return False
        return encoding.acts.hook in ("input", *self.hooks)


class Kind(NamedTuple):
    """What the layers that share all their positions and masks have in common.

    Args:
        encoding: name of the composition.
        pattern: the pattern of the attention, or None.
        variant: which of the transform's tables they need, or None.
    """

    encoding: str
    pattern: Optional[Hashable] = None
    variant: Optional[Hashable] = None


class HeadSizes(NamedTuple):
    """The heads of a kernel, as position encodings see them.

    Args:
        number: H.
        channels: number of channels or features per head that position encodings act on.
        flags: the flags that set *channels*, for error messages.
    """

    number: int
    channels: int
    flags: str


class AttentionKernel(FairseqIncrementalState, nn.Module):
    """Interface of a self-attention: a module constructed as ``kernel(C, H, encoding, **kwargs)``.

    Its ``forward`` attends from the new tokens to all tokens so far.  It takes the input of the
    layer for the new tokens, (B, T, C); by name, those entries of :class:`Positions` that its
    stack has for it; and ``incremental_state``, fairseq's cache or None.  It returns (B, T, C).
    What it keeps in the cache are tensors with the batch first, which beam search reorders; keys
    are kept after the position transform.  The class methods are called before a model is built.
    """

    #: The abilities of the kernel, whatever the settings.
    abilities = Abilities()
    #: The pattern of keys that a query sees, if not all: layers of equal patterns share the
    #: positions that :meth:`sparse_positions` returns.  :meth:`place` sets the pattern.
    pattern: Optional[Hashable] = None
    #: Layers of one kind share all their positions; the stack sets it.
    kind: Kind
    #: The number of the layer in its stack, from 0, by which its encoding is asked; the stack
    #: sets it.
    number: int
    #: The position encoding of the layer.
    encoding: PositionEncoding
    #: H and D; fairseq's decoder reads them.
    num_heads: int
    head_dim: int
    get_incremental_state: Callable[..., Any]
    set_incremental_state: Callable[..., Any]

    @classmethod
    def abilities_for(cls, options: Options) -> Abilities:
        """What the kernel can do with the settings of a model.

        Args:
            options: the model configuration, complete.
        """
        return cls.abilities

    @classmethod
    def check(cls, options: Options, encodings: List[Encoding]) -> None:
        """Refuse settings and encodings that the abilities do not rule out already.

        Raises:
            UsageError: naming the flag.
        """

    @classmethod
    def head_sizes(cls, options: Options, side: str) -> HeadSizes:
        """The heads of the encoder or decoder.

        Raises:
            UsageError: the number of channels is not divisible by the number of heads.
        """
        channels = option(options, f"{side}_embed_dim")
        heads = option(options, f"{side}_attention_heads")
        if heads < 1 or channels % heads:
            raise UsageError(
                f"--{side}-attention-heads {heads}: must divide --{side}-embed-dim {channels}"
            )
        flags = f"--{side}-embed-dim over --{side}-attention-heads"
        return HeadSizes(heads, channels // heads, flags)

    def place(self, index: int, first: "AttentionKernel") -> None:
        """Called once per model, when all layers of a stack are there.

        Args:
            index: the index of the layer in its stack, from 0.
            first: the kernel of the first layer, whose parameters may be shared.
        """

    def sparse_positions(self, tokens: Tokens) -> Positions:
        """The masks and content-free logits of this layer's pattern, once per forward pass.

        Only called if there is a :attr:`pattern`; no tensor of size T·S is made then.
        """
        raise NotImplementedError

    @classmethod
    def by_distance(
        cls,
        logits: SharedBiasSum,
        length: int,
        causal: bool,
        padding_mask: Optional[Tensor],
        x: Tensor,
    ) -> Optional[Positions]:
        """Logits by distance in place of a bias of all pairs, or None if the bias is needed.

        Args:
            logits: content-free logits that are a function of the distance alone.
            length: T, of queries and keys.
            causal: hide later keys.
            padding_mask: (B, T), True at padding, or None.
            x: input of the first layer, (B, T, C).
        """
        return None

    def cached_length(self, incremental_state: cache.IncrementalState) -> int:
        """Number of tokens in this layer's cache."""
        return cache.cached_length(self, incremental_state)

    def reorder_incremental_state(
        self, incremental_state: cache.IncrementalState, new_order: Tensor
    ) -> None:
        """Reorder the cache along with the hypotheses of a beam search."""
        cache.reorder_cache(self, incremental_state, new_order)

    def extra_repr(self) -> str:
        """The settings shown by ``print(model)``."""
        return f"encoding={self.encoding.name}, heads={self.num_heads}, head_dim={self.head_dim}"


class MultiheadKernel(JointProjections, AttentionKernel, StockMultiheadAttention):
    """A kernel with fairseq's projections of queries, keys, values and output, and its dropout.

    Parameter names are fairseq's (q_proj, k_proj, v_proj, out_proj), so checkpoints and the flags
    that rely on them (quantisation noise, pruning, initialisation) keep working.

    Args:
        embed_dim: C.
        num_heads: H.
        encoding: the position encoding of this layer.
        kwargs: passed to fairseq's attention (dropout, quantisation noise).
    """

    q_proj: nn.Module
    k_proj: nn.Module
    v_proj: nn.Module
    out_proj: nn.Module
    dropout_module: FairseqDropout

    def __init__(
        self, embed_dim: int, num_heads: int, encoding: PositionEncoding, **kwargs: object
    ) -> None:
        super().__init__(embed_dim, num_heads, self_attention=True, **kwargs)
        self.encoding = encoding

    def by_head(self, x: Tensor) -> Tensor:
        """(B, T, C) as (B, T, H, D)."""
        return x.view(*x.shape[:2], self.num_heads, self.head_dim)
