"""Queries, keys and values of self-attention from one matrix product at inference.

At inference on a GPU a decoding step is bound by the number of kernels.  On a CPU one product of
a few rows with the joint weight takes longer than three with its parts, so the parts are used.
"""

from typing import Optional, Sequence, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairseq_posenc.attention.functional import product_dtype
from fairseq_posenc.basics.versions import is_compiling


class JointProjection:
    """One weight and bias; the parameters of several linear layers are views of them.

    Names, values and the memory of parameters stay as they are.  Whoever gives a parameter other
    memory, as ``.half()`` does, ends that; the layers are then used one by one.

    Args:
        layers: linear layers of one input, for which :func:`can_join` holds.
    """

    def __init__(self, layers: Sequence[nn.Linear]) -> None:
        self.layers = tuple(layers)
        self.weight = torch.cat([layer.weight.detach() for layer in layers])
        self.bias: Optional[Tensor] = None
        if layers[0].bias is not None:
            self.bias = torch.cat([layer.bias.detach() for layer in layers])
        self.sizes = [layer.weight.size(0) for layer in layers]
        for layer, weight in zip(layers, self.weight.split(self.sizes)):
            layer.weight.data = weight
        if self.bias is not None:
            for layer, bias in zip(layers, self.bias.split(self.sizes)):
                layer.bias.data = bias

    def serves(self, x: Tensor) -> bool:
        """True if the joint product is faster than the layers for *x*, and equal to them."""
        return (
            wanted(x)
            and can_join(self.layers)
            and product_dtype(x) is self.weight.dtype
            and _views(self.weight, [layer.weight for layer in self.layers])
            and (self.bias is None or _views(self.bias, [layer.bias for layer in self.layers]))
        )

    def __call__(self, x: Tensor) -> Tuple[Tensor, ...]:
        """The outputs of the layers for *x* (B, T, C)."""
        return F.linear(x, self.weight, self.bias).split(self.sizes, dim=-1)


def wanted(x: Tensor) -> bool:
    """True where a joint product is faster: on a GPU, without gradients, in eager mode."""
    if torch.is_grad_enabled() or torch.jit.is_tracing() or is_compiling():
        return False
    return x.is_cuda


def can_join(layers: Sequence[nn.Module]) -> bool:
    """True if *layers* are what ``F.linear`` of their own parameters computes.

    Not so with quantisation noise and pruning, which are hooks, with sharded parameters, which are
    not the layer's own, and with other types of layers.
    """
    for layer in layers:
        if type(layer) is not nn.Linear or layer._forward_hooks or layer._forward_pre_hooks:
            return False
        if layer._parameters.get("weight") is None:
            return False
    return len({layer.bias is None for layer in layers}) == 1


def _views(whole: Tensor, parts: Sequence[Tensor]) -> bool:
    """True if *parts* follow each other in the memory of *whole*."""
    address = whole.data_ptr()
    for part in parts:
        if part.data_ptr() != address or part.dtype is not whole.dtype:
            return False
        address += part.numel() * part.element_size()
    return True
