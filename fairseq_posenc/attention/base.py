"""The interface and the registry of self-attention kernels."""

from dataclasses import dataclass
from typing import Any, Callable, ClassVar, Dict, FrozenSet, Hashable, List, Optional, Tuple

import torch
import torch.nn.functional as F
from fairseq.incremental_decoding_utils import FairseqIncrementalState
from fairseq.modules import MultiheadAttention as StockMultiheadAttention
from fairseq.modules.fairseq_dropout import FairseqDropout
from torch import Tensor, nn

from fairseq_posenc.attention import cache
from fairseq_posenc.attention.functional import Batch, masks, product_dtype
from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.versions import in_graph
from fairseq_posenc.encodings import Encoding, PositionEncoding, Stack
from fairseq_posenc.encodings.base import Places
from fairseq_posenc.flags.options import Options, option
from fairseq_posenc.flags.registry import ClassRegistry
from fairseq_posenc.flags.settings import setting

ATTENTIONS = ClassRegistry("--attention", "attentions")
#: Decorates a subclass of :class:`AttentionKernel`.
register_attention = ATTENTIONS.register


def traceable() -> List[str]:
    """The values of ``--attention`` with which a traced graph serves texts of every length."""
    return [name for name, entry in ATTENTIONS.items() if entry.thing.traceable]


@dataclass
class AttentionFlags:
    """The flag that selects self-attention."""

    attention: Optional[str] = setting(
        "softmax",
        "self-attention: {choices}; the cost of all but softmax is linear in sequence length. In "
        "linear attention, --attention-dropout drops a key for all queries of a head at once. "
        "Attention to the source is always softmax",
        choices=ATTENTIONS,
        needs={"layer": ("transformer",)},
        traceable=traceable,
    )


class AttentionKernel(FairseqIncrementalState, nn.Module):
    """Interface of a self-attention kernel, constructed as ``kernel(C, H, encoding, **kwargs)``.

    Once per forward pass, one kernel of each :attr:`kind` prepares keyword arguments for all
    kernels of that kind.  Each prepared tensor with a gradient has to be a separate argument,
    because fairseq's activation checkpointing does not find tensors inside other objects.  The
    first dimension of every cached tensor is the batch, which beam search reorders.  Class methods
    are called before a model is built.
    """

    #: What the kernel supports; other encodings and flags are refused.  ``transform``: transforms
    #: of queries and keys; ``linear``: only those transforms that are linear maps of single
    #: vectors; ``values``: encodings that also change values; ``shared``: content-free logits;
    #: ``content``: content-dependent terms; ``keys``: an input for keys and values that differs
    #: from the input for queries; ``any_order``: assigned positions in any order.
    takes: ClassVar[FrozenSet[str]] = frozenset()
    #: True if a traced graph serves texts of every length, as export to ONNX requires.
    traceable: ClassVar[bool] = False
    #: For error messages: why the kernel cannot hide later keys; None if it can.
    bidirectional_only: ClassVar[Optional[str]] = None
    #: How the cache can have the same shape in all decoding steps: ``keys`` if it holds keys and
    #: values, and *padding_mask* or *bias* can hide the unused memory after them; ``sums`` if its
    #: size is constant in any case; empty if its shape has to change.
    static_cache: ClassVar[str] = ""
    #: True if the kernel uses :attr:`.Padding.first_text`.
    reads_first_text = False
    #: True if *bias* has to hide later keys even where a fused kernel could hide them.
    causal_in_bias = False
    #: Kernels with equal first entries share the result of :meth:`prepare`; if their second entries
    #: are equal as well, they also share the transform's table.  :meth:`set_layer` sets both.
    kind: Tuple[Hashable, Hashable]
    #: The index of the layer in its stack; :meth:`set_layer` sets it.
    number = 0
    #: The position encoding of the layer.
    encoding: PositionEncoding
    #: H and D; fairseq's decoder uses both.
    num_heads: int
    head_dim: int
    get_incremental_state: Callable[..., Any]
    set_incremental_state: Callable[..., Any]

    @classmethod
    def accepts(cls, encoding: Encoding) -> bool:
        """True if the kernel supports the hook of *encoding*."""
        if encoding.transform is not None:
            linear = "linear" in cls.takes and encoding.transform.applies_to_features
            return linear or "transform" in cls.takes
        return encoding.acts.hook in ("input", *cls.takes)

    @classmethod
    def relative_after_rotation(cls, options: Options) -> bool:
        """Whether products of rotated queries and keys depend on their distance alone."""
        return True

    @classmethod
    def check(cls, options: Options, encodings: List[Encoding], stacks: List[Stack]) -> None:
        """Refuse what the class attributes allow but the kernel does not support.

        *stacks* are all stacks with this kernel; *encodings* are all encodings in these stacks.
        Only defaults that depend on *stacks* are unset in *options*; the method sets them in place.
        """

    @classmethod
    def heads(cls, options: Options, side: str) -> Tuple[int, int]:
        """H, and the number of channels or features per head that encodings change; H divides C."""
        channels = option(options, f"{side}_embed_dim")
        heads = option(options, f"{side}_attention_heads")
        if heads < 1 or channels % heads:
            raise UsageError(
                f"--{side}-attention-heads {heads}: must divide --{side}-embed-dim {channels}"
            )
        return heads, channels // heads

    @classmethod
    def size_flags(cls, options: Options, side: str) -> str:
        """For error messages: the flags that determine the second result of :meth:`heads`."""
        return f"a different --{side}-embed-dim or --{side}-attention-heads"

    def set_layer(self, index: int, first: "AttentionKernel") -> None:
        """Set the index of the kernel's layer, once all layers of a stack are built.

        A subclass may take over parameters from *first*, the kernel of the first layer.
        """
        self.number = index
        transform = self.encoding.transform
        table = None if transform is None else transform.variant(index)
        self.kind = (self.encoding.name, table)

    def prepare(self, batch: Batch, places: Places) -> Dict[str, Any]:
        """Keyword arguments of :meth:`forward` for all kernels of one kind.

        By default, the result of :func:`.masks`.  *places* are the positions of the queries and
        keys of *batch*.  The stack adds ``table``, the table of the encoding's transform.
        """
        return masks(self, batch, places)

    def forward(
        self,
        x: Tensor,
        keys: Optional[Tensor] = None,
        incremental_state: cache.IncrementalState = None,
        **prepared: Any,
    ) -> Tensor:
        """The output (B, T, C) of attention from the new tokens to all tokens so far.

        *x* (B, T, C) is the input of the layer for the new tokens; *keys* (B, S, C) is the input
        for keys and values, if it differs from *x*; *prepared* is the result of :meth:`prepare`.
        """
        raise NotImplementedError

    cached_length = cache.cached_length
    reorder_incremental_state = cache.reorder_cache

    def extra_repr(self) -> str:
        return f"encoding={self.encoding.name}, heads={self.num_heads}, head_dim={self.head_dim}"


class JoinedParameters:
    """Mixin for attention that joins parameters in memory, for inference on a GPU.

    One operation can then use several parameters, and the number of operations limits the speed of
    a decoding step on a GPU.  On a CPU, one product of a few rows with the joined weight takes
    longer than three products with its parts, so the parts are used.

    Names and values of parameters do not change.  A joined tensor is out of date once other code
    moves a parameter to other memory.
    """

    #: joined tensors by name; None, for PyTorch 2.4's compiler, until parameters are joined
    joined: Optional[Dict[str, Tensor]] = None

    def joinable(self) -> Dict[str, List[Tensor]]:
        """The parameters to join, by name of the joined tensor."""
        raise NotImplementedError

    def current(self, parts: Dict[str, List[Tensor]]) -> Dict[str, Tensor]:
        """The joined tensors of the parameters *parts*; empty if one is missing or out of date."""
        joined = self.joined or {}
        whole = {name: joined[name] for name in parts if name in joined}
        current = len(whole) == len(parts) and all(are_views(whole[n], parts[n]) for n in parts)
        return whole if current else {}

    def make_generation_fast_(self, **kwargs: Any) -> None:
        """Join the parameters; fairseq calls this once for a model that will not be trained."""
        self.joined = {name: join(parts) for name, parts in self.joinable().items()}

    def _apply(self, *args: Any, **kwargs: Any) -> "JoinedParameters":
        """Join the parameters again after ``.half()`` and the like give them new memory."""
        super()._apply(*args, **kwargs)  # type: ignore[misc]  # nn.Module has it
        if self.joined:
            self.make_generation_fast_()
        return self


def join(parameters: List[Tensor]) -> Tensor:
    """Concatenate *parameters* into one tensor; each becomes a view of some of its rows."""
    whole = torch.cat([parameter.detach() for parameter in parameters])
    for parameter, part in zip(parameters, whole.split([len(each) for each in parameters])):
        parameter.data = part
    return whole


def are_views(whole: Tensor, parts: List[Tensor]) -> bool:
    """True if *parts* follow each other in the memory of *whole*."""
    address = whole.data_ptr()
    for part in parts:
        if part.data_ptr() != address or part.dtype is not whole.dtype:
            return False
        address += part.numel() * part.element_size()
    return True


def launch_bound(x: Tensor) -> bool:
    """True if the time to start operations limits the speed: uncompiled inference on a GPU."""
    return x.is_cuda and not (torch.is_grad_enabled() or in_graph())


def weights_and_biases(layers: List[nn.Module]) -> Dict[str, List[Tensor]]:
    """The weights and the biases of linear *layers*; empty if one product cannot replace them.

    One product cannot replace layers that have hooks (from quantisation noise or pruning), layers
    with sharded parameters, or layers of another type.
    """
    for layer in layers:
        if type(layer) is not nn.Linear or layer._forward_hooks or layer._forward_pre_hooks:
            return {}
        if layer._parameters.get("weight") is None:
            return {}
    parts: Dict[str, List[Any]] = {
        name: [layer._parameters[name] for layer in layers] for name in ("weight", "bias")
    }
    biases = {bias is None for bias in parts["bias"]}
    # queries and keys may share one projection
    if len(set(layers)) < len(layers) or len(biases) > 1:
        return {}
    return {"weight": parts["weight"]} if True in biases else parts


class MultiheadKernel(JoinedParameters, AttentionKernel, StockMultiheadAttention):
    """A kernel with the projections and the dropout of fairseq's multi-head attention.

    The modules keep fairseq's names, on which checkpoints, quantisation noise, pruning and
    initialisation rely.

    The constructor takes C, H, the encoding of the layer, and further arguments of fairseq's
    attention (dropout, quantisation noise).
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
        """View *x* (B, T, C) as (B, T, H, D)."""
        return x.view(*x.shape[:2], self.num_heads, self.head_dim)

    def joinable(self) -> Dict[str, List[Tensor]]:
        """The weights and biases of the three projections that have the same input."""
        return weights_and_biases([self.q_proj, self.k_proj, self.v_proj])

    def joint_product(self, x: Tensor) -> Optional[Tuple[Tensor, ...]]:
        """Outputs of q_proj, k_proj and v_proj for *x* (B, T, C); None if they are not joined."""
        if self.joined and launch_bound(x):
            parts = self.joinable()
            whole = self.current(parts)
            if whole and product_dtype(x) is whole["weight"].dtype:
                sizes = [len(part) for part in parts["weight"]]
                return F.linear(x, **whole).split(sizes, dim=-1)
        return None
