"""The choice between one kernel for a rotation and PyTorch's operations.

In half precision PyTorch casts queries and keys to float32, multiplies and casts them back: several
kernels, which write float32 to memory.  The kernel of ``rotary_kernel.py`` replaces them on GPUs
where Triton is installed.  It is tried once: a machine that cannot compile it, because it has
no C compiler for example, uses PyTorch's operations.
"""

import importlib.util
import logging
from functools import lru_cache
from typing import Callable, Optional, Sequence, Tuple

import torch
from torch import Tensor

from fairseq_posenc.basics.versions import is_compiling, parse_version

#: A rotation by (tensors, table, pairing, d); see ``rotary_kernel.rotate``.
Rotation = Callable[[Sequence[Tensor], Tensor, str, int], Tuple[Tensor, ...]]
HALF_PRECISION = (torch.float16, torch.bfloat16)
#: The oldest GPUs that the kernel was compiled for.
LEAST_CAPABILITY = (7, 0)
#: The oldest Triton that the kernel was compiled with; PyTorch 2.4 brings it.
LEAST_TRITON = (3, 0)
logger = logging.getLogger(__name__)


def rotated(
    tensors: Sequence[Tensor], table: Tensor, pairing: str, dim: int
) -> Optional[Tuple[Tensor, ...]]:
    """The rotated *tensors*, or None where PyTorch's operations compute them.

    Args:
        tensors: queries and keys, (B, T, H, D) each, on a CUDA device.
        table: complex rotations.
        pairing: which channels form a pair.
        dim: the number of channels that are rotated.
    """
    kernel = kernel_for(tensors[0])
    return None if kernel is None else kernel(tensors, table, pairing, dim)


def kernel_for(x: Tensor) -> Optional[Rotation]:
    """The kernel for tensors such as *x*, or None to use PyTorch's operations.

    Args:
        x: queries or keys, on a CUDA device.
    """
    # a subclass of Tensor may have no memory for a kernel to read
    if x.dtype not in HALF_PRECISION or type(x) is not Tensor:
        return None
    if torch.jit.is_tracing() or is_compiling():
        return None
    return _kernel(x.device, x.dtype)


@lru_cache(maxsize=None)  # one attempt and one warning a run
def _kernel(device: torch.device, dtype: torch.dtype) -> Optional[Rotation]:
    """The kernel, if it works on *device* with tensors of *dtype*."""
    if torch.cuda.get_device_capability(device) < LEAST_CAPABILITY:
        return None
    try:
        if importlib.util.find_spec("triton") is None:
            return None
        import triton

        if parse_version(triton.__version__) < LEAST_TRITON:
            return None
        from fairseq_posenc.packs.gpu.rotary_kernel import rotate

        if _is_right(rotate, device, dtype):
            return rotate
        reason = "its results are wrong"
    except Exception as error:  # Triton can fail in many ways
        reason = f"{type(error).__name__}: {str(error).strip()}".partition("\n")[0]
    logger.warning(
        "rotary: the kernel that rotates queries and keys cannot be used on %s in %s (%s); "
        "PyTorch's operations take its place",
        *(torch.cuda.get_device_name(device), str(dtype).replace("torch.", ""), reason),
    )
    return None


def _is_right(rotate: Rotation, device: torch.device, dtype: torch.dtype) -> bool:
    """Check that *rotate* rotates pairs (a, b) by a right angle to (-b, a)."""
    x = torch.arange(128, device=device).to(dtype).view(1, 1, 2, 64)
    angle = torch.full((1, 1, 1, 32), 1j, dtype=torch.complex64, device=device)
    want = torch.stack((-x[..., 1::2], x[..., 0::2]), dim=-1).flatten(-2)
    return all(torch.equal(result, want) for result in rotate((x, x), angle, "interleaved", 64))
