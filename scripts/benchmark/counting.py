"""Count, on any machine, a model's operations, waits and saved bytes as they would be on a GPU.

    python scripts/benchmark/counting.py --archs transformer roformer_base

The flags are those of ``scripts/benchmark/time_models.py``.  The table counts, per training step or
generated token: waits of the host for the device; constants copied to the device; operations
(ATen calls except views; the host dispatches them one by one); kernels (operations that start a
kernel on a GPU, so no allocations); bytes saved for the backward pass, without parameters; elements
of the largest mask or stored attention matrix; and the attention kernels that PyTorch would choose
on V100, A100 and H100, or the reasons against a kernel (see fused.py).  Fused attention counts as
one operation, as does a step that ``--cuda-graphs`` records.  Counts of generation include the beam
search of fairseq.  The operations are those that PyTorch dispatches, so the counts are exact and
reproducible.
"""

import argparse
import contextlib
import sys
from collections import Counter
from dataclasses import dataclass, field
from unittest import mock

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from fairseq_posenc.basics.versions import HAS_FUSED_RMS_NORM
from fused import GPUS, AttentionCall, fused_kernel
from rounds import prepare_process
from time_models import JOBS, cases, get_parser, table

#: Methods (class and name) that are one operation on a GPU: the replay of a recorded step.
REPLAYS = []
with contextlib.suppress(ImportError):
    from fairseq_posenc.packs.gpu.recorded_step import Recording

    REPLAYS.append((Recording, "replay"))
#: Operations that make the host wait for the device.
WAITS = ("_local_scalar_dense", "nonzero", "masked_select", "equal", "unique", "_unique2")
#: A view that its schema does not declare as a view.
_VIEW = "_unsafe_view"
#: Operations that start no kernel on a GPU.
NO_KERNEL = [
    *("lift_fresh", "_local_scalar_dense", "promote_types"),
    *("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"),
]
_IS_CUDA = torch.Tensor.is_cuda.__get__  # a property that is implemented in C


@dataclass
class Counts:
    """The counts of a run.

    Args:
        operations: the number of calls of each ATen operation except views.
        waits: how often the host waited in each operation.
        copies: constants copied from the host, for which a GPU has to wait as well.
        attention: the attention calls that a fused kernel might serve.
        explicit: attention matrices (B, H, T, S) that were computed and stored, to apply a softmax.
        saved: bytes saved for the backward pass, without parameters.
        largest: elements of the largest mask or stored attention matrix.
    """

    operations: Counter = field(default_factory=Counter)
    waits: Counter = field(default_factory=Counter)
    copies: int = 0
    attention: list = field(default_factory=list)
    explicit: int = 0
    saved: int = 0
    largest: int = 0

    @property
    def kernels(self):
        """The operations that start a kernel on a GPU."""
        return Counter({x: n for x, n in self.operations.items() if x not in NO_KERNEL})

    def kernels_of_attention(self, capability):
        """How often a GPU would choose each fused kernel and, for each reason, none.

        Args:
            capability: compute capability of the GPU times ten, such as 70 for V100.
        """
        found = Counter()
        for call in self.attention:
            choice = fused_kernel(call, capability)
            copied = " with a copy of the mask" if choice.copies_mask else ""
            found[f"{choice.kernel}{copied}" if choice.kernel else f"none: {choice.reason}"] += 1
        found["none: weights are stored"] += self.explicit
        return +found


class _Operations(TorchDispatchMode):
    """Counts dispatched operations, except while it is paused."""

    def __init__(self, counts):
        super().__init__()
        self.counts, self.active = counts, True
        #: sizes as tensors, and tensors computed from sizes, keyed by id
        self.on_host = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if self.active:
            name = func.__name__.split(".")[0]
            given = [x for x in args if torch.is_tensor(x)]
            on_host = bool(given) and all(id(x) in self.on_host for x in given)
            if on_host and torch.is_tensor(result):
                self.on_host[id(result)] = result
            self.counts.waits[name] += name in WAITS and not on_host
            self.counts.copies += name == "lift_fresh"
            returned = [out.alias_info for out in func._schema.returns]
            is_view = any(alias is not None and not alias.is_write for alias in returned)
            self.counts.operations[name] += not (is_view or name == _VIEW)
        return result

    @contextlib.contextmanager
    def paused(self):
        """Context in which no operations are counted."""
        before, self.active = self.active, False
        try:
            yield
        finally:
            self.active = before


class _Fused(torch.autograd.Function):
    """Counts a function as one kernel, which saves inputs, output and one number per row."""

    @staticmethod
    def forward(ctx, operations, name, compute, *tensors):
        """Return ``compute(*tensors)``, counted as one operation *name*."""
        ctx.operations, ctx.name, ctx.compute = operations, name, compute
        counted = operations.active
        with operations.paused():
            out = compute(*tensors)
            sums = out.new_empty(out.shape[:-1], dtype=torch.float32)
        ctx.save_for_backward(*tensors, out, sums)
        operations.counts.operations[name] += counted
        return out

    @staticmethod
    def backward(ctx, *gradients):
        """Compute all gradients, counted as one operation."""
        *tensors, _, _ = ctx.saved_tensors
        ctx.operations.counts.operations[f"{ctx.name}_backward"] += 1
        needed = ctx.needs_input_grad[3:]
        with ctx.operations.paused(), torch.enable_grad():
            given = [
                x if x is None else x.detach().requires_grad_(needs)
                for x, needs in zip(tensors, needed)
            ]
            wanted = [x for x in given if x is not None and x.requires_grad]
            found = iter(torch.autograd.grad(ctx.compute(*given), wanted, gradients[0]))
        return (None, None, None, *(next(found) if needs else None for needs in needed))


class _AsOnGPU(TorchFunctionMode):
    """Claims that tensors are on a GPU; counts waits and attention that _Operations cannot see."""

    def __init__(self, operations, capability):
        super().__init__()
        self.operations, self.capability = operations, capability

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func == _IS_CUDA:
            return True
        if func is torch._shape_as_tensor:  # is on the CPU for all devices
            sizes = func(*args, **kwargs)
            self.operations.on_host[id(sizes)] = sizes
            return sizes
        if func in (Tensor.tolist, Tensor.numpy, Tensor.cpu):
            self.operations.counts.waits[func.__name__] += 1
            with self.operations.paused():
                return func(*args, **kwargs)
        if func is torch.softmax and args[0].dim() == 4:  # as functional.py calls it
            self.operations.counts.explicit += 1
            self._note(args[0])
        if HAS_FUSED_RMS_NORM and func is F.rms_norm:
            norm = lambda x: func(x, *args[1:], **kwargs)  # noqa: E731
            return _Fused.apply(self.operations, "rms_norm", norm, args[0])
        if func is not F.scaled_dot_product_attention:
            return func(*args, **kwargs)
        names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
        given = {**dict(zip(names, args)), **kwargs}
        call = AttentionCall.of(**given)
        self.operations.counts.attention.append(call)
        self._note(given.get("attn_mask"))
        if fused_kernel(call, self.capability).kernel is None:
            return func(*args, **kwargs)
        tensors = [given.pop(name, None) for name in names[:4]]
        attend = lambda *t: func(*t, **given)  # noqa: E731
        return _Fused.apply(self.operations, "attention", attend, *tensors)

    def _note(self, pairs):
        """Note the size of an attention mask or matrix."""
        counts = self.operations.counts
        counts.largest = max(counts.largest, 0 if pairs is None else pairs.numel())


def _as_one(operations, replay):
    """Wrap *replay* to count as one operation: a GPU's host starts a recorded step by one call."""

    def replayed(recording, decoder):
        operations.counts.operations["graph"] += operations.active
        with operations.paused():
            replay(recording, decoder)

    return replayed


def in_backward():
    """True inside a backward pass; always False before PyTorch 2.1, which cannot tell."""
    task = getattr(torch._C, "_current_graph_task_id", None)
    return task is not None and task() >= 0


def count(run, parameters, capability=80):
    """Count what *run* would make a GPU do.

    Args:
        run: a function that has run once, so that constants exist already.
        parameters: the parameters of the model, which do not count as saved.
        capability: compute capability of the GPU times ten.
    """
    counts = Counts()
    own = {parameter.untyped_storage().data_ptr() for parameter in parameters}
    seen = set()
    held = []  # keeps storages alive, so that no address is used again

    def pack(tensor):
        storage = tensor.untyped_storage()
        if in_backward():  # tensors recomputed in the backward pass are freed at once
            return tensor
        if operations.active and storage.data_ptr() not in own | seen:
            seen.add(storage.data_ptr())
            held.append(tensor)
            counts.saved += storage.nbytes()
        return tensor

    operations = _Operations(counts)
    recorded = contextlib.ExitStack()
    for owner, name in REPLAYS:
        replay = _as_one(operations, getattr(owner, name))
        recorded.enter_context(mock.patch.object(owner, name, replay))
    hooks = torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor)
    with recorded, _AsOnGPU(operations, capability), hooks, operations:
        run()
    counts.operations, counts.waits = +counts.operations, +counts.waits
    return counts


def counted(case):
    """A row for each model, with counts of a training step or of one generated token."""
    rows = [_row(entry, case) for entry in case.archs]
    for row in rows:
        for name in ("operations", "kernels", "saved_mib"):
            row[f"{name}_ratio"] = row[name] / rows[0][name] if rows[0][name] else None
    return rows


def _row(entry, case):
    found, steps = [_count(entry, case, case.length)], 1
    if case.job.endswith("generation"):  # a token is the difference between a long and a short text
        longest = max(case.length[-1], 2)
        short = longest // 2
        found = [_count(entry, case, [*case.length[:-1], n]) for n in (longest, short)]
        steps = longest - short
    every = {
        "operations": [sum(counts.operations.values()) for counts in found],
        "kernels": [sum(counts.kernels.values()) for counts in found],
        "waits": [sum(counts.waits.values()) for counts in found],
        "copies": [counts.copies for counts in found],
        "saved_mib": [counts.saved / 2**20 for counts in found],
    }
    figures = {name: (first - sum(rest)) / steps for name, (first, *rest) in every.items()}
    figures["largest"] = found[0].largest
    kernels = {name: dict(found[0].kernels_of_attention(number)) for number, name in GPUS.items()}
    return dict(job=case.job, model=entry, **figures, attention=kernels)


def _count(entry, case, length):
    own = argparse.Namespace(**{**vars(case), "length": length})
    subject = JOBS[case.job](entry, case.job, own)
    subject.run()  # makes constants
    return count(subject.run, subject.model.parameters())


COLUMNS = (
    *(("job", "job", ""), ("model", "model", ""), ("waits", "waits", "g")),
    *(("copies", "copies", "g"), ("operations", "operations", "g")),
    *(("ratio", "operations_ratio", ".3f"), ("kernels", "kernels", "g")),
    ("ratio", "kernels_ratio", ".3f"),
    *(("saved MiB", "saved_mib", ".1f"), ("ratio", "saved_mib_ratio", ".3f")),
    ("largest", "largest", "d"),
)


def main(argv):
    """Count whole models on the CPU, and print the table and the attention kernels of GPUs."""
    args = get_parser().parse_args([*argv, "--device", "cpu"])
    prepare_process(args)
    rows = [row for case in cases(args) for row in counted(case)]
    print(table(rows, COLUMNS))
    for row in rows:
        print(f"\n{row['job']}, {row['model']}")
        for gpu, kernels in row["attention"].items():
            words = ", ".join(f"{number} x {name}" for name, number in kernels.items())
            print(f"    {gpu}: {words or 'no attention that could be fused'}")


if __name__ == "__main__":
    main(sys.argv[1:])
