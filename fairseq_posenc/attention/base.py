"""What the rest of the package asks of a self-attention, and what it is given once a forward."""

from typing import List, Optional, Tuple, TypedDict

from torch import Tensor

from fairseq_posenc.attention.functional import combined_masks
from fairseq_posenc.encodings.base import Encoding
from fairseq_posenc.errors import UsageError
from fairseq_posenc.options import Options


class Positions(TypedDict, total=False):
    """Positions and masks of one forward, the same for all layers of one composition.

    The stack computes them, layers pass them on as ``**positions``, and only the attention unpacks
    them.  They are bare tensors, because fairseq's activation checkpointing does not see tensors
    inside other objects.

    Args:
        bias: masks and content-free logits, (1|B, 1|H, 1|T, S), or None.
        causal: whether to hide later keys where no *bias* does.
        table: what transforms q and k at the new positions, such as a rotation, or None.
        query_positions: (1|B, T), for kernels and content-dependent terms; else None.
        key_positions: (1|B, S), likewise.
        padding_mask: (B, S), True at padding, likewise; None without padding.
        distance_vectors: (N, L, H·D) of L distances, for those of N terms; else None.
    """

    bias: Optional[Tensor]
    causal: bool
    table: Optional[Tensor]
    query_positions: Optional[Tensor]
    key_positions: Optional[Tensor]
    padding_mask: Optional[Tensor]
    distance_vectors: Optional[Tensor]


class AttentionKernel:
    """Interface of a self-attention: a module constructed as ``kernel(C, H, encoding, **kwargs)``.

    Its ``forward`` takes the layer's input (T, B, C), the entries of :class:`Positions` by name,
    ``incremental_state`` and ``need_weights``, and returns (T, B, C) and the weights (B, H, T, S)
    or None.  ``cached_length(incremental_state)`` says how many tokens its cache has seen.  What
    follows is asked of the class, before a model is built.
    """

    #: False if logits are never computed, so that nothing can be added to them
    computes_logits = True
    #: True if ``forward`` reads query_positions and key_positions
    needs_positions = False
    #: False if values are not of the keys' size, so that encodings cannot change them
    values_like_keys = True
    #: how the stack hands padding and causality over
    masks = staticmethod(combined_masks)

    @classmethod
    def check(cls, options: Options, encodings: List[Encoding]) -> None:
        """Refuse *options* and *encodings* that this kernel cannot serve.

        Raises:
            UsageError: naming the flag.
        """

    @classmethod
    def heads(cls, options: Options, side: str) -> Tuple[int, int]:
        """Number of heads H, and how many channels of a head the position encoding acts on.

        Raises:
            UsageError: if the heads do not divide the channels.
        """
        channels = getattr(options, f"{side}_embed_dim")
        heads = getattr(options, f"{side}_attention_heads")
        if heads < 1 or channels % heads:
            raise UsageError(
                f"--{side}-attention-heads {heads}: must divide --{side}-embed-dim {channels}"
            )
        return heads, channels // heads

    @classmethod
    def size_flags(cls, options: Options, side: str) -> str:
        """The flags that set that number of channels, for error messages."""
        return f"--{side}-embed-dim over --{side}-attention-heads"

    @classmethod
    def relative_after_rotation(cls, options: Options) -> bool:
        """Whether rotating queries and keys keeps attention a function of their distance."""
        return True

    def set_layer_index(self, index: int) -> None:
        """Called once a model, with the place of the layer in its stack, from 0."""
