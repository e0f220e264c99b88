"""What a run makes a GPU do, counted on any machine: waits of the host, kernels, saved bytes.

The counts are those of the operations that PyTorch dispatches, so they are exact and the same every
time.  Fused attention counts as one kernel forward and one backward wherever a GPU would choose a
fused kernel (see fused.py).
"""

import contextlib
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Iterator, List, Set, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from fairseq_posenc.benchmark.fused import AttentionCall, fused_kernel

#: Operations that make the host wait for the device.
WAITS = ("_local_scalar_dense", "nonzero", "masked_select", "equal", "unique", "_unique2")
#: Operations that start no kernel on a GPU, besides views.
NO_KERNEL = [
    *("_unsafe_view", "lift_fresh", "_local_scalar_dense", "promote_types"),
    *("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"),
]


@dataclass
class Counts:
    """What was counted.

    Args:
        kernels: how often each ATen operation that starts a kernel was called.
        waits: how often the host waited, by operation.
        copies: constants copied from the host, which a GPU has to wait for as well.
        attention: the attention calls.
        saved: bytes kept for the backward pass, without parameters.
    """

    kernels: "Counter[str]" = field(default_factory=Counter)
    waits: "Counter[str]" = field(default_factory=Counter)
    copies: int = 0
    attention: List[AttentionCall] = field(default_factory=list)
    saved: int = 0

    def unfused(self, capability: int) -> Dict[str, int]:
        """Reasons for attention calls without a fused kernel, and how many have each.

        Args:
            capability: compute capability of the GPU times ten, such as 70 for V100.
        """
        found = (fused_kernel(call, capability) for call in self.attention)
        return dict(Counter(choice.reason for choice in found if choice.kernel is None))


class _Operations(TorchDispatchMode):
    """Counts dispatched operations until it is paused."""

    def __init__(self, counts: Counts) -> None:
        super().__init__()
        self.counts, self.active = counts, True

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if self.active:
            name = func.__name__.split(".")[0]
            self.counts.waits[name] += name in WAITS
            self.counts.copies += name == "lift_fresh"
            returned = [out.alias_info for out in func._schema.returns]
            is_view = any(alias is not None and not alias.is_write for alias in returned)
            self.counts.kernels[name] += not is_view and name not in NO_KERNEL
        return result

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Context in which nothing is counted."""
        before, self.active = self.active, False
        try:
            yield
        finally:
            self.active = before


class _Fused(torch.autograd.Function):
    """Fused attention as a GPU counts it: one kernel, which saves inputs, output and row sums."""

    @staticmethod
    def forward(ctx: Any, operations: _Operations, compute: Any, *tensors: Any) -> Tensor:
        """Attend; *compute* takes queries, keys, values and an additive mask or None."""
        ctx.operations, ctx.compute = operations, compute
        with operations.paused():
            out = compute(*tensors)
            sums = out.new_empty(out.shape[:-1], dtype=torch.float32)
        ctx.save_for_backward(*tensors, out, sums)
        operations.counts.kernels["fused_attention"] += 1
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Tuple[Any, ...]:
        """One kernel for all gradients."""
        *tensors, _, _ = ctx.saved_tensors
        ctx.operations.counts.kernels["fused_attention_backward"] += 1
        needed = ctx.needs_input_grad[2:]
        with ctx.operations.paused(), torch.enable_grad():
            given = [
                x if x is None else x.detach().requires_grad_(needs)
                for x, needs in zip(tensors, needed)
            ]
            wanted = [x for x in given if x is not None and x.requires_grad]
            found = iter(torch.autograd.grad(ctx.compute(*given), wanted, gradients[0]))
        return (None, None, *(next(found) if needs else None for needs in needed))


class _AsOnGPU(TorchFunctionMode):
    """Says of tensors that they are on a GPU, and notes waits and attention that only it sees."""

    def __init__(self, operations: _Operations, capability: int) -> None:
        super().__init__()
        self.operations, self.capability = operations, capability

    def __torch_function__(
        self, func: Any, types: Any, args: Tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is Tensor.is_cuda.__get__:  # type: ignore[attr-defined]  # a property of C
            return True
        if func in (Tensor.tolist, Tensor.numpy, Tensor.cpu):
            self.operations.counts.waits[func.__name__] += 1
            with self.operations.paused():
                return func(*args, **kwargs)
        if func is not F.scaled_dot_product_attention:
            return func(*args, **kwargs)
        names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
        given = {**dict(zip(names, args)), **kwargs}
        call = AttentionCall.of(**given)
        self.operations.counts.attention.append(call)
        if fused_kernel(call, self.capability).kernel is None:
            return func(*args, **kwargs)
        tensors = [given.pop(name, None) for name in names[:4]]
        return _Fused.apply(self.operations, lambda *t: func(*t, **given), *tensors)


def count(run: Callable[[], Any], parameters: Iterator[Tensor], capability: int = 80) -> Counts:
    """Count what *run* would make a GPU do.

    Args:
        run: something that has run before, so that constants are made already.
        parameters: those of its model, which are not counted as saved.
        capability: compute capability of the GPU times ten.
    """
    counts = Counts()
    own = {parameter.untyped_storage().data_ptr() for parameter in parameters}
    seen: Set[int] = set()
    held: List[Tensor] = []  # so that no storage is freed and its address used again

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if operations.active and storage.data_ptr() not in own | seen:
            seen.add(storage.data_ptr())
            held.append(tensor)
            counts.saved += storage.nbytes()
        return tensor

    operations = _Operations(counts)
    hooks = torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor)
    with _AsOnGPU(operations, capability), hooks, operations:
        run()
    counts.kernels, counts.waits = +counts.kernels, +counts.waits
    return counts
