"""Predict which fused attention kernel PyTorch would choose on a GPU.

The conditions are transcribed from ``aten/src/ATen/native/transformers/cuda/sdp_utils.cpp`` of
PyTorch 2.4 and later; nothing here needs a GPU.
"""

from typing import Any, NamedTuple, Optional, Tuple

import torch
from torch import Tensor

#: GPUs, keyed by compute capability times ten.
GPUS = {70: "V100", 80: "A100", 90: "H100"}
HALF = (torch.float16, torch.bfloat16)
ALIGNMENT = 8  # elements


class AttentionCall(NamedTuple):
    """The properties of an attention call that decide which kernel is chosen.

    Args:
        dtype: the dtype of queries, keys and values.
        query: sizes (B, H, T, D).
        key: sizes (B, H, S, D).
        value: sizes (B, H, S, D).
        dense: whether the channels of queries, keys and values are contiguous in memory.
        mask: dtype, sizes and strides of the mask, or None.
        causal: whether ``is_causal`` hides later keys.
    """

    dtype: torch.dtype
    query: Tuple[int, ...]
    key: Tuple[int, ...]
    value: Tuple[int, ...]
    dense: bool
    mask: Optional[Tuple[torch.dtype, Tuple[int, ...], Tuple[int, ...]]]
    causal: bool

    @classmethod
    def of(
        cls,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Optional[Tensor] = None,
        is_causal: bool = False,
        **unused: Any,
    ) -> "AttentionCall":
        """Describe a call of ``scaled_dot_product_attention`` with these arguments."""
        tensors, mask = (query, key, value), attn_mask
        described = None if mask is None else (mask.dtype, tuple(mask.shape), mask.stride())
        dense = all(x.stride(-1) == 1 for x in tensors)
        return cls(query.dtype, *(tuple(x.shape) for x in tensors), dense, described, is_causal)


class Choice(NamedTuple):
    """The kernel that PyTorch would choose, and why it would not choose a faster one.

    Args:
        kernel: ``"flash"``, ``"memory-efficient"``, or None.
        reason: what rules out faster kernels.
        copies_mask: whether PyTorch has to copy the mask first, to align its rows.
    """

    kernel: Optional[str]
    reason: str
    copies_mask: bool = False


def fused_kernel(call: AttentionCall, capability: int) -> Choice:
    """The kernel that PyTorch would choose.

    >>> sizes = (2, 8, 16, 64)
    >>> call = AttentionCall(torch.float16, sizes, sizes, sizes, True, None, True)
    >>> [fused_kernel(call, gpu).kernel for gpu in (70, 80)]
    ['memory-efficient', 'flash']

    Args:
        call: the arguments of the attention.
        capability: compute capability of the GPU times ten.
    """
    against_flash = _against_flash(call, capability)
    if against_flash is None:
        return Choice("flash", "")
    against = _against_memory_efficient(call, capability)
    if against is not None:
        return Choice(None, against)
    copies = call.mask is not None and any(s % ALIGNMENT for s in call.mask[2][:-1])
    return Choice("memory-efficient", against_flash, copies)


def _against_flash(call: AttentionCall, capability: int) -> Optional[str]:
    if capability < 80:
        return "flash needs sm_80"
    if call.dtype not in HALF:
        return f"flash: {call.dtype}"
    if call.mask is not None:
        return "flash: takes no mask"
    if not call.query[-1] == call.key[-1] == call.value[-1] <= 256:
        return "flash: head sizes differ or are above 256"
    if call.causal and call.query[-2] != call.key[-2]:
        return "flash: causal with different numbers of queries and keys"
    return None if call.dense else "flash: channels are not contiguous"


def _against_memory_efficient(call: AttentionCall, capability: int) -> Optional[str]:
    types = [torch.float32, torch.float16] + [torch.bfloat16] * (capability >= 80)
    if call.dtype not in types:
        return f"{call.dtype} on sm_{capability}"
    half = call.dtype in HALF
    multiple = 8 if half else 4 if capability >= 80 else 1  # of head sizes
    if call.query[-1] != call.key[-1] or call.query[-1] % multiple or call.value[-1] % multiple:
        return f"head sizes are no multiples of {multiple}"
    if not call.dense:
        return "channels are not contiguous"
    if min(call.query[-2], call.key[-2]) == 0:
        return "empty sequences"
    if call.mask is not None:
        dtype, _, strides = call.mask
        if strides[-1] != 1:
            return "the last dimension of the mask is not contiguous"
        if dtype not in (torch.bool, call.dtype):
            return f"the mask is {dtype}"
    return None
