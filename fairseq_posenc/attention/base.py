"""Self-attention kernels: their interface and their registry."""

from dataclasses import dataclass
from typing import Any, Callable, ClassVar, Dict, FrozenSet, Hashable, List, Optional, Tuple

from fairseq.incremental_decoding_utils import FairseqIncrementalState
from fairseq.modules import MultiheadAttention as StockMultiheadAttention
from fairseq.modules.fairseq_dropout import FairseqDropout
from torch import Tensor, nn

from fairseq_posenc.attention import cache
from fairseq_posenc.attention.batch import Batch
from fairseq_posenc.attention.functional import additive_mask, aligned, product_dtype
from fairseq_posenc.attention.joint import JointProjections
from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.encodings import PositionEncoding, Stack
from fairseq_posenc.encodings.base import Encoding, Places
from fairseq_posenc.flags.options import Options, option
from fairseq_posenc.flags.registry import ClassRegistry
from fairseq_posenc.flags.settings import setting

ATTENTIONS = ClassRegistry("--attention")
#: Decorates a subclass of :class:`AttentionKernel`.
register_attention = ATTENTIONS.register


def traceable() -> List[str]:
    """The values of ``--attention`` whose traced graph serves texts of every length."""
    return [name for name, entry in ATTENTIONS.items() if entry.thing.traceable]


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


class AttentionKernel(FairseqIncrementalState, nn.Module):
    """Interface of a self-attention: a module constructed as ``kernel(C, H, encoding, **kwargs)``.

    Once a forward pass, one kernel of each :attr:`kind` prepares what all of that kind get by name:
    masks, logits and tables, bare tensors where they have a gradient, since fairseq's activation
    checkpointing sees no tensors inside other objects, and numbers that the host knows.  What a
    kernel keeps in the cache are tensors with the batch first, which beam search reorders; keys are
    kept after the position transform.  The class methods are called before a model is built.
    """

    #: What the kernel takes: ``transform``, transforms of queries and keys, or ``linear``, those
    #: that are linear maps of single vectors; ``values``, transforms and content-dependent terms
    #: that change the values, too; ``shared``, content-free logits; ``content``, content-dependent
    #: terms; ``keys``, keys other than its queries; ``any_order``, positions in any order, which
    #: differ between sequences.  Other encodings and flags are refused.
    takes: ClassVar[FrozenSet[str]] = frozenset()
    #: True if a traced graph serves texts of every length, so that ONNX can have it.
    traceable: ClassVar[bool] = False
    #: Why the kernel cannot hide later keys, or None if it can.
    bidirectional_only: ClassVar[Optional[str]] = None
    #: How a decoding step can be done with tensors that keep their shapes: ``keys``, if the cache
    #: has the keys and values of all tokens so far, and *padding_mask* or *bias* can hide room for
    #: more behind them; ``sums``, if the cache has a constant size; empty if it cannot.
    static_cache: ClassVar[str] = ""
    #: True if the length of the first text of a pair matters.
    reads_first_text = False
    #: True if *bias* has to hide later keys, even where a fused kernel could.
    causal_in_bias = False
    #: Kernels of one kind share what :meth:`prepare` returns; :meth:`place` sets it.
    kind: Hashable
    #: The number of the layer in its stack, by which its encoding is asked; :meth:`place` sets it.
    number = 0
    #: The position encoding of the layer.
    encoding: PositionEncoding
    #: H and D; fairseq's decoder reads them.
    num_heads: int
    head_dim: int
    get_incremental_state: Callable[..., Any]
    set_incremental_state: Callable[..., Any]

    @classmethod
    def accepts(cls, encoding: Encoding) -> bool:
        """True if *encoding* acts where the kernel lets it act."""
        if encoding.transform is not None:
            linear = "linear" in cls.takes and encoding.transform.applies_to_features
            return linear or "transform" in cls.takes
        return encoding.acts.hook in ("input", *cls.takes)

    @classmethod
    def relative_after_rotation(cls, options: Options) -> bool:
        """Whether rotating q and k keeps the product a function of distance."""
        return True

    @classmethod
    def check(cls, options: Options, encodings: List[Encoding], stacks: List[Stack]) -> None:
        """Refuse settings, encodings and stacks that the attributes do not rule out already.

        Args:
            options: the model configuration, complete but for defaults that follow from *stacks*,
                which are filled in place.
            encodings: all that the stacks use.
            stacks: all that have this kernel.

        Raises:
            UsageError: naming the flag.
        """

    @classmethod
    def heads(cls, options: Options, side: str) -> Tuple[int, int]:
        """H, and the number of channels or features of a head that position encodings act on.

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
        """The flags that set the second number of :meth:`heads`, for error messages."""
        return f"--{side}-embed-dim over --{side}-attention-heads"

    def place(self, index: int, first: "AttentionKernel") -> None:
        """Called once per model, when all layers of a stack are there.

        Args:
            index: the index of the layer in its stack, from 0.
            first: the kernel of the first layer, whose parameters may be shared.
        """
        self.number = index
        self.kind = (self.encoding.name, self.encoding.variant(index))

    def prepare(self, batch: Batch) -> Dict[str, Any]:
        """What :meth:`forward` gets by name, for all kernels of one kind, once a forward pass.

        By default the results of :meth:`tables` and of :meth:`masks`.
        """
        places = batch.places(self.encoding.relative)
        return {**self.tables(batch, places), **self.masks(batch, places)}

    def tables(self, batch: Batch, places: Places) -> Dict[str, Any]:
        """``table`` of the transform for the queries, and ``key_table`` where keys differ, if any.

        Args:
            batch: the batch.
            places: positions of its queries and keys.
        """
        if self.encoding.transform is None:
            return {}
        tables = {"table": self.encoding.table(places.queries, self.number)}
        projected = batch.projected or batch.queries
        if projected != batch.queries:
            keys = places.keys[:, -projected:]
            tables["key_table"] = self.encoding.table(keys, self.number)
        return tables

    def masks(self, batch: Batch, places: Places) -> Dict[str, Any]:
        """Masks and content-free logits.

        Args:
            batch: the batch.
            places: positions of its queries and keys.

        Returns:
            ``bias``: both, (1|B, 1|H, 1|T, S), or None; ``causal``: whether the attention has to
            hide later keys by itself; ``empty_rows``: whether a query may see no key.
        """
        padding, like, logits = batch.padding, batch.like, None
        if self.encoding.shared_bias is not None:
            logits = self.encoding.shared_bias(places, cls_first=not padding.left)
        # the causal mask of the fused kernel needs T = S, and cannot go with a bias
        in_bias = self.causal_in_bias or logits is not None or padding.mask is not None
        fused = not in_bias and batch.queries == batch.length
        rows, hide = (1, False) if fused else (batch.queries, batch.causal)
        bias = additive_mask(rows, batch.length, hide, padding.mask, like)
        if logits is not None:
            logits = logits.to(product_dtype(like))
            bias = logits if bias is None else bias + logits
        return {
            "bias": None if bias is None else aligned(bias.to(product_dtype(like))),
            "causal": batch.causal and fused,
            "empty_rows": padding.empty_rows(batch.causal),
        }

    def forward(
        self,
        x: Tensor,
        keys: Optional[Tensor] = None,
        incremental_state: cache.IncrementalState = None,
        **prepared: Any,
    ) -> Tensor:
        """Attend from the new tokens to all tokens so far.

        Args:
            x: input of the layer for the new tokens, (B, T, C).
            keys: input for keys and values, (B, S, C), where queries have another; for kernels that
                take it.
            incremental_state: fairseq's cache, or None.
            prepared: the result of :meth:`prepare`.

        Returns:
            (B, T, C).
        """
        raise NotImplementedError

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
