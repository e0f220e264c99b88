"""Data types and memory layout of tensors."""

import contextlib
from typing import Any, ContextManager, Dict, Optional, Sequence

import torch
from torch import Tensor

from fairseq_posenc.basics.versions import is_compiling

#: For each floating-point type: the type in which its sums are computed.
AT_LEAST_FLOAT32: Dict[torch.dtype, torch.dtype] = {
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
    torch.float32: torch.float32,
    torch.float64: torch.float64,
}


def no_autocast(device: torch.device) -> ContextManager[Any]:
    """A context without autocast on *device*."""
    if device.type not in ("cpu", "cuda"):
        return contextlib.nullcontext()
    return torch.autocast(device.type, enabled=False)


def view_as_stack(tensors: Sequence[Tensor]) -> Optional[Tensor]:
    """A view (N, …) of N *tensors* (…) that are equally spaced in one block of memory, else None.

    Queries and keys of a joint projection have such a view, so one operation can process both.  The
    view has no gradient.

    >>> whole = torch.arange(6).view(2, 3)
    >>> with torch.no_grad():
    ...     view_as_stack([whole[:, 1], whole[:, 2]])
    ...     view_as_stack([whole[:, 1], whole[:, 2].clone()]) is None
    tensor([[1, 4],
            [2, 5]])
    True
    """
    first = tensors[0]
    if len(tensors) == 1:
        return first.unsqueeze(0)
    if torch.is_grad_enabled() or torch.jit.is_tracing() or is_compiling():
        return None
    step = (tensors[1].data_ptr() - first.data_ptr()) // first.element_size()
    for index, x in enumerate(tensors):
        same = (x.shape, x.stride(), x.dtype) == (first.shape, first.stride(), first.dtype)
        offset = x.storage_offset() - first.storage_offset()
        moved = x.data_ptr() - first.data_ptr() - offset * first.element_size()
        if not same or moved or offset != index * step or step < 0:
            return None
    return first.as_strided((len(tensors), *first.shape), (step, *first.stride()))


def concatenated(parts: Sequence[Tensor], dim: int) -> Tensor:
    """Concatenate *parts* along *dim*; a single part is returned without a copy."""
    return parts[0] if len(parts) == 1 else torch.cat(list(parts), dim=dim)
