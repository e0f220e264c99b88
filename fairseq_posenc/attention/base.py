"""The interface of self-attention kernels, and the positions and masks that they receive."""

from typing import Hashable, List, NamedTuple, Optional, Tuple, TypedDict

from torch import Tensor

from fairseq_posenc.attention.functional import combined_masks
from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.encodings import PositionEncoding
from fairseq_posenc.encodings.base import Encoding, Stack
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
        global_bias: of kernels with global tokens: the bias of these as queries, (1|B, 1|H, G, S).
        global_rows: which of them are global, where sequences differ: (B, 1, G, 1), or None.
        starts: of kernels with a pattern: padding tokens that a sequence begins with, (B, 1), or
            None if there are none.
        chosen: of kernels with a pattern: the keys or blocks of keys that it selects.
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
        positions: of a sequence without such padding, (S), int64.
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


class AttentionKernel:
    """Interface of a self-attention: a module constructed as ``kernel(C, H, encoding, **kwargs)``.

    Its ``forward`` takes the layer's input (B, T, C), the entries of :class:`Positions` by name,
    ``incremental_state`` and ``need_weights``, and returns (B, T, C) and the weights (B, H, T, S)
    or None.  ``cached_length(incremental_state)`` returns the number of tokens in its cache.  The
    class methods are called before a model is built.
    """

    #: False if logits are never computed, so no bias can be added
    computes_logits = True
    #: False if a traced graph would serve texts of one length alone, so that ONNX cannot have it
    traceable = True
    #: Which keys a query sees, if not all: layers of equal patterns share the positions that
    #: :meth:`sparse_positions` returns.  Known after :meth:`set_layer_index`.
    pattern: Optional[Hashable] = None
    #: the position encoding of the layer
    encoding: PositionEncoding
    #: True if ``forward`` reads query_positions and key_positions
    needs_positions = False
    #: True if ``forward`` takes *keys* other than its queries
    takes_keys = False
    #: False if values and keys differ in size, so encodings cannot change the values
    values_like_keys = True
    #: why it is not for stacks that hide later keys, or None if it is
    bidirectional_only: Optional[str] = None
    #: computes *bias* and *causal* from padding and causality
    masks = staticmethod(combined_masks)

    @classmethod
    def check(cls, options: Options, encodings: List[Encoding]) -> None:
        """Refuse *options* and *encodings* that this kernel does not support.

        Raises:
            UsageError: naming the flag.
        """

    @classmethod
    def complete(cls, options: Options, stacks: List[Stack]) -> None:
        """Fill settings that depend on *stacks*, in place, and refuse stacks it does not support.

        Args:
            options: the model configuration, complete but for these settings.
            stacks: all that have this kernel.

        Raises:
            UsageError: naming the flag.
        """
        for stack in stacks:
            if stack.causal and cls.bidirectional_only:
                raise UsageError(
                    f"--attention {options.attention}: {cls.bidirectional_only}, and this "
                    f"{stack.side} must not see later keys; give another attention, or a masked "
                    "language model without --causal"
                )

    @classmethod
    def explicit_masks(cls, options: Options) -> bool:
        """True if the causal mask has to be part of *bias*; *causal* is then always False."""
        return False

    @classmethod
    def reads_first_text(cls, options: Options) -> bool:
        """True if :meth:`sparse_positions` reads the length of the first text of a pair."""
        return False

    @classmethod
    def scales_by_length(cls, options: Options) -> bool:
        """True if ``forward`` reads *length_factor*."""
        return False

    @classmethod
    def length_factor(cls, options: Options, counts: Tensor) -> Tensor:
        """The factor *length_factor*, called once per forward pass.

        Args:
            options: the model configuration.
            counts: number of keys that each query sees, (1|B, 1, 1|T, 1), float32, at least 1.
        """
        return counts

    @classmethod
    def heads(cls, options: Options, side: str) -> Tuple[int, int]:
        """Number of heads H, and number of channels per head that position encodings act on.

        Raises:
            UsageError: the number of channels is not divisible by the number of heads.
        """
        channels = option(options, f"{side}_embed_dim")
        heads = option(options, f"{side}_attention_heads")
        if heads < 1 or channels % heads:
            raise UsageError(
                f"--{side}-attention-heads {heads}: must divide --{side}-embed-dim {channels}"
            )
        return heads, channels // heads

    @classmethod
    def size_flags(cls, options: Options, side: str) -> str:
        """The flags that set the number of channels per head, for error messages."""
        return f"--{side}-embed-dim over --{side}-attention-heads"

    @classmethod
    def relative_after_rotation(cls, options: Options) -> bool:
        """True if rotating q and k keeps the product a function of distance."""
        return True

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

    def sparse_positions(self, tokens: Tokens) -> Positions:
        """The masks and content-free logits of this layer's pattern, once per forward pass.

        Only called if there is a :attr:`pattern`; no tensor of size T·S is made then.
        """
        raise NotImplementedError

    def set_layer_index(self, index: int) -> None:
        """Called once per model, with the index of the layer in its stack, from 0."""

    def share_parameters(self, first: "AttentionKernel") -> None:
        """Called once per model, with the kernel of the first layer in its stack."""
