"""The interface of self-attention kernels, and the positions and masks that they receive."""

from dataclasses import dataclass
from typing import Callable, Hashable, List, NamedTuple, Optional, Tuple, TypedDict

from torch import Tensor

from fairseq_posenc.attention.functional import combined_masks
from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.encodings import PositionEncoding
from fairseq_posenc.encodings.base import Encoding
from fairseq_posenc.encodings.shared_bias import SharedBiasSum
from fairseq_posenc.flags.options import Options, option


class Positions(TypedDict, total=False):
    """Positions and masks of one forward, the same for all layers of one composition.

    The stack computes them, layers pass them on as ``**positions``, and only the attention unpacks
    them.  They are bare tensors, because fairseq's activation checkpointing does not see tensors
    inside other objects.

    Args:
        bias: masks and content-free logits, (1|B, 1|H, 1|T, S), or None.
        causal: whether the attention has to hide later keys; False if *bias* does so.
        empty_rows: whether a query may see no key at all.
        length_factor: what the kernel makes of the number of keys that a query sees, (1|B, 1, 1|T,
            1), float32, for kernels that ask for it.
        table: table of the transform, such as rotations, for the new positions, or None.
        key_table: that for the positions of *keys*.
        keys: input for keys and values, (B, S, C), where it is not that for queries: with a memory,
            or where queries are pooled; for kernels that take it.
        step: distance between neighbouring queries, in keys; 2 where they are pooled.
        query_positions: (1|B, T), for kernels and content-dependent terms; else None.
        key_positions: (1|B, S), likewise.
        padding_mask: (B, S), True at padding, likewise; None without padding.
        distance_vectors: (N, L, H·D) for N content-dependent terms and L distances, or None.
        global_bias: for kernels with global tokens, the bias of these as queries, (1|B, 1|H, G, S).
        global_rows: True at global ones where sequences differ, (B, 1, G, 1), or None.
        starts: for kernels with a pattern, the number of padding tokens that a sequence begins
            with, (B, 1), or None if there are none.
        chosen: for kernels with a pattern, the keys or blocks of keys that it selects.
    """

    bias: Optional[Tensor]
    causal: bool
    empty_rows: bool
    length_factor: Tensor
    table: Optional[Tensor]
    key_table: Optional[Tensor]
    keys: Optional[Tensor]
    step: int
    query_positions: Optional[Tensor]
    key_positions: Optional[Tensor]
    padding_mask: Optional[Tensor]
    distance_vectors: Optional[Tensor]
    global_bias: Optional[Tensor]
    global_rows: Optional[Tensor]
    starts: Optional[Tensor]
    chosen: Optional[Tensor]


class Tokens(NamedTuple):
    """The tokens of one forward pass, from which a kernel makes the bias of its own pattern.

    Args:
        query_length: T; queries are the last T of S tokens.
        key_length: S.
        causal: hide later keys.
        padding_mask: (B, S), True at padding, or None.
        left: whether a sequence begins with padding.
        positions: the positions of a sequence without such padding, (S), int64.
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
    logits: Optional[SharedBiasSum]
    like: Tensor
    first_text: Optional[Tensor] = None


Masks = Callable[..., Tuple[Optional[Tensor], bool]]


@dataclass(frozen=True)
class Abilities:
    """What a self-attention kernel can do, as checks and stacks need to know.

    Args:
        computes_logits: False if logits are never computed, so that no bias can be added.
        content: True if the kernel adds the content-dependent terms of its encoding to the logits.
        takes_keys: True if ``forward`` takes *keys* other than its queries.
        needs_positions: True if ``forward`` reads query_positions and key_positions.
        values_like_keys: False if values and keys differ in size, so that encodings cannot change
            the values.
        traceable: False if a traced graph would serve texts of one length alone, so that ONNX
            cannot have it.
        bidirectional_only: why it is not for stacks that hide later keys, or None if it is.
        masks: computes *bias* and *causal* from padding and causality.
        explicit_masks: True if the causal mask has to be part of *bias*; *causal* is then False.
        reads_first_text: True if :meth:`.AttentionKernel.sparse_positions` reads the length of the
            first text of a pair.
        relative_after_rotation: whether rotating q and k keeps the product a function of distance.
        length_factor: computes the entry *length_factor* from the number of keys that each query
            sees, (1|B, 1, 1|T, 1), float32, at least 1; None if ``forward`` does not read it.
        longest: name of the setting that is the greatest number of tokens, or None.
        why_longest: why there cannot be more tokens.
    """

    computes_logits: bool = True
    content: bool = False
    takes_keys: bool = False
    needs_positions: bool = False
    values_like_keys: bool = True
    traceable: bool = True
    bidirectional_only: Optional[str] = None
    masks: Masks = combined_masks
    explicit_masks: bool = False
    reads_first_text: bool = False
    relative_after_rotation: bool = True
    length_factor: Optional[Callable[[Tensor], Tensor]] = None
    longest: Optional[str] = None
    why_longest: str = ""


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


class AttentionKernel:
    """Interface of a self-attention: a module constructed as ``kernel(C, H, encoding, **kwargs)``.

    Its ``forward`` takes the layer's input (B, T, C), the entries of :class:`Positions` by name,
    ``incremental_state`` and ``need_weights``, and returns (B, T, C) and the weights (B, H, T, S)
    or None.  ``cached_length(incremental_state)`` returns the number of tokens in its cache, and
    fairseq's decoder reads ``num_heads`` and ``head_dim``.  The class methods are called before a
    model is built.
    """

    #: The abilities of the kernel, whatever the settings.
    abilities = Abilities()
    #: The pattern of keys that a query sees, if not all: layers of equal patterns share the
    #: positions that :meth:`sparse_positions` returns.  :meth:`place` sets the pattern.
    pattern: Optional[Hashable] = None
    #: The position encoding of the layer.
    encoding: PositionEncoding

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

    def refuse_weights(self, need_weights: bool) -> None:
        """For kernels that compute no attention weights.

        Raises:
            UsageError: *need_weights* is True.
        """
        if need_weights:
            raise UsageError(
                f"--attention {self.encoding.options.attention}: returns no attention weights; "
                "use softmax"
            )
