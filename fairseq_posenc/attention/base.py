"""Self-attention kernels: their interface and their registry."""

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
        choices=ATTENTIONS,
        needs={"layer": ("transformer",)},
        traceable=traceable,
    )


class AttentionKernel(FairseqIncrementalState, nn.Module):
    """Interface of a self-attention: a module constructed as ``kernel(C, H, encoding, **kwargs)``.

    Once per forward pass, one kernel of each :attr:`kind` prepares the keyword arguments of all
    kernels of that kind.  A tensor with a gradient has to be an argument itself, because fairseq's
    activation checkpointing sees no tensors inside other objects.  Tensors in a cache begin with
    the batch, which beam search reorders.  Class methods are called before a model is built.
    """

    #: What the kernel supports; other encodings and flags are refused.  ``transform``: transforms
    #: of queries and keys, or ``linear``: only linear maps of single vectors; ``values``: encodings
    #: that also change values; ``shared``: content-free logits; ``content``: content-dependent
    #: terms; ``keys``: keys of other tokens; ``any_order``: positions in any order.
    takes: ClassVar[FrozenSet[str]] = frozenset()
    #: True if a traced graph serves texts of every length, as ONNX needs.
    traceable: ClassVar[bool] = False
    #: Why the kernel cannot hide later keys, or None if it can.
    bidirectional_only: ClassVar[Optional[str]] = None
    #: How a decoding step can use tensors of constant shapes: ``keys``, if the cache has the keys
    #: and values of all tokens so far, and *padding_mask* or *bias* can hide the room after them;
    #: ``sums``, if the cache has a constant size; empty if a step cannot.
    static_cache: ClassVar[str] = ""
    #: True if the length of the first text of a pair matters.
    reads_first_text = False
    #: True if *bias* hides later keys, even if a fused kernel could do so.
    causal_in_bias = False
    #: Kernels with an equal first entry share the result of :meth:`prepare`, except for the table,
    #: which the second entry selects; :meth:`set_layer` sets both.
    kind: Tuple[Hashable, Hashable]
    #: The index of the layer in its stack; :meth:`set_layer` sets it.
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
        """True if the kernel supports the hook of *encoding*."""
        if encoding.transform is not None:
            linear = "linear" in cls.takes and encoding.transform.applies_to_features
            return linear or "transform" in cls.takes
        return encoding.acts.hook in ("input", *cls.takes)

    @classmethod
    def relative_after_rotation(cls, options: Options) -> bool:
        """Whether the products of rotated q and k depend on the distance alone."""
        return True

    @classmethod
    def check(cls, options: Options, encodings: List[Encoding], stacks: List[Stack]) -> None:
        """Refuse settings, encodings and stacks that the attributes allow, but the kernel does not.

        *options* is complete but for defaults that follow from *stacks*; this fills them in place.
        *stacks* are all stacks with this kernel, and *encodings* are all encodings in them.
        """

    @classmethod
    def heads(cls, options: Options, side: str) -> Tuple[int, int]:
        """H, and the channels or features per head that encodings act on; H has to divide C."""
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

    def set_layer(self, index: int, first: "AttentionKernel") -> None:
        """Tell the kernel the index of its layer, once all layers of a stack are built.

        It may then share parameters of the *first* layer's kernel.
        """
        self.number = index
        transform = self.encoding.transform
        table = None if transform is None else transform.variant(index)
        self.kind = (self.encoding.name, table)

    def prepare(self, batch: Batch, places: Places) -> Dict[str, Any]:
        """The arguments of :meth:`forward` for kernels of one kind, made once per forward pass.

        By default the result of :func:`.masks`.  *places* are the positions of the queries and keys
        of *batch*.  The stack adds the ``table`` of the encoding's transform.
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

        *x* (B, T, C) is the input of the layer for the new tokens, and *keys* (B, S, C) the
        input for keys and values, if different; *prepared* is the result of :meth:`prepare`.
        """
        raise NotImplementedError

    cached_length = cache.cached_length
    reorder_incremental_state = cache.reorder_cache

    def extra_repr(self) -> str:
        return f"encoding={self.encoding.name}, heads={self.num_heads}, head_dim={self.head_dim}"


class JoinedParameters:
    """Mixin for attention: in inference on a GPU, one operation reads several parameters.

    A decoding step on a GPU is bound by the number of operations.  On a CPU one product of a few
    rows with the joint weight takes longer than three with its parts, so the parts are used.

    Names and values of parameters do not change.  A joined tensor is out of date once other code
    moves a parameter to other memory.
    """

    #: joined tensors by name, with parameters as views; first None, which PyTorch 2.4 can compile
    joined: Optional[Dict[str, Tensor]] = None

    def joinable(self) -> Dict[str, List[Tensor]]:
        """The parameters of each joined tensor."""
        raise NotImplementedError

    def current(self, parts: Dict[str, List[Tensor]]) -> Dict[str, Tensor]:
        """The joined tensors of *parts*; empty if one is out of date."""
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
    """One tensor that holds *parameters*, which become views of its rows."""
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
    """True where starting operations takes the time: on a GPU, without gradients, in eager mode."""
    return x.is_cuda and not (torch.is_grad_enabled() or in_graph())


def weights_and_biases(layers: List[nn.Module]) -> Dict[str, List[Tensor]]:
    """The weights and the biases of linear layers; empty if one product cannot replace the layers.

    It cannot replace layers with hooks (of quantisation noise or pruning), layers with sharded
    parameters, or layers of another type.
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
    # keys may share the projection of queries
    if len(set(layers)) < len(layers) or len(biases) > 1:
        return {}
    return {"weight": parts["weight"]} if True in biases else parts


class MultiheadKernel(JoinedParameters, AttentionKernel, StockMultiheadAttention):
    """A kernel with fairseq's projections of queries, keys, values and output, and its dropout.

    Checkpoints, quantisation noise, pruning and initialisation rely on the names of these modules,
    which are fairseq's.

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
        """(B, T, C) as (B, T, H, D)."""
        return x.view(*x.shape[:2], self.num_heads, self.head_dim)

    def joinable(self) -> Dict[str, List[Tensor]]:
        """The weights and biases of the projections, which share one input."""
        return weights_and_biases([self.q_proj, self.k_proj, self.v_proj])

    def joint_product(self, x: Tensor) -> Optional[Tuple[Tensor, ...]]:
        """The outputs of q_proj, k_proj and v_proj for *x* (B, T, C); None to apply each alone."""
        if self.joined and launch_bound(x):
            parts = self.joinable()
            whole = self.current(parts)
            if whole and product_dtype(x) is whole["weight"].dtype:
                sizes = [len(part) for part in parts["weight"]]
                return F.linear(x, **whole).split(sizes, dim=-1)
        return None
