"""Queries, keys and values of self-attention from one product at inference.

At inference on a GPU a decoding step is bound by the number of kernels.  On a CPU one product of
a few rows with the joint weight takes longer than three with its parts, so the parts are used.
"""

from typing import Any, Optional, Sequence, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairseq_posenc.attention.functional import product_dtype
from fairseq_posenc.basics.versions import is_compiling


class JointProjection:
    """One weight and bias; the parameters of several linear layers are views of them.

    The names and values of the parameters do not change.  Once ``.half()`` or the like moves a
    parameter to other memory, the joint weight is out of date, and the layers are used one by one.

    Args:
        layers: linear layers of one input, for which :func:`can_join` holds.
    """

    def __init__(self, layers: Sequence[nn.Linear]) -> None:
        self.layers = tuple(layers)
        self.weight = join([layer.weight for layer in layers])
        self.bias: Optional[Tensor] = None
        if layers[0].bias is not None:
            self.bias = join([layer.bias for layer in layers])
        self.sizes = [layer.weight.size(0) for layer in layers]

    def serves(self, x: Tensor) -> bool:
        """True if the joint product is up to date, and faster than the layers for *x*."""
        return (
            launch_bound(x)
            and can_join(self.layers)
            and product_dtype(x) is self.weight.dtype
            and are_views(self.weight, [layer.weight for layer in self.layers])
            and (self.bias is None or are_views(self.bias, [layer.bias for layer in self.layers]))
        )

    def __call__(self, x: Tensor) -> Tuple[Tensor, ...]:
        """The outputs of the layers for *x* (B, T, C)."""
        return F.linear(x, self.weight, self.bias).split(self.sizes, dim=-1)


def join(parameters: Sequence[Tensor]) -> Tensor:
    """One tensor that holds *parameters*, which become views of its rows."""
    whole = torch.cat([parameter.detach() for parameter in parameters])
    for parameter, part in zip(parameters, whole.split([len(each) for each in parameters])):
        parameter.data = part
    return whole


def launch_bound(x: Tensor) -> bool:
    """True where starting kernels takes the time: on a GPU, without gradients, in eager mode."""
    if torch.is_grad_enabled() or torch.jit.is_tracing() or is_compiling():
        return False
    return x.is_cuda


def can_join(layers: Sequence[nn.Module]) -> bool:
    """True if each of *layers* is a plain ``nn.Linear`` with separate parameters.

    Layers with the hooks of quantisation noise or pruning, with sharded parameters, or of another
    type cannot be joined.
    """
    for layer in layers:
        if type(layer) is not nn.Linear or layer._forward_hooks or layer._forward_pre_hooks:
            return False
        if layer._parameters.get("weight") is None:
            return False
    distinct = len(set(layers)) == len(layers)  # keys may share the projection of queries
    return distinct and len({layer.bias is None for layer in layers}) == 1


def are_views(whole: Tensor, parts: Sequence[Tensor]) -> bool:
    """True if *parts* follow each other in the memory of *whole*."""
    address = whole.data_ptr()
    for part in parts:
        if part.data_ptr() != address or part.dtype is not whole.dtype:
            return False
        address += part.numel() * part.element_size()
    return True


class JointProjections:
    """Mixin of an attention that joins its q_proj, k_proj and v_proj, which have one input."""

    joint: Optional[JointProjection] = None
    q_proj: nn.Module
    k_proj: nn.Module
    v_proj: nn.Module

    def make_generation_fast_(self, **kwargs: Any) -> None:
        """Join the projections; fairseq calls this once for a model that will not be trained."""
        projections: Any = (self.q_proj, self.k_proj, self.v_proj)
        self.joint = JointProjection(projections) if can_join(projections) else None

    def _apply(self, *args: Any, **kwargs: Any) -> "JointProjections":
        """Join the projections again after ``.half()`` and the like give them new memory."""
        super()._apply(*args, **kwargs)  # type: ignore[misc]  # nn.Module has it
        if self.joint is not None:
            self.make_generation_fast_()
        return self
