"""The bytes that two processes exchange in a training step, as docs/gpu.md counts them."""

import pytest
import torch.distributed as dist
from fairseq.distributed import LegacyDistributedDataParallel, ModuleProxyWrapper
from support.benchmark_runs import subject
from support.two_processes import answer_of_two, size_of
from torch.nn.parallel import DistributedDataParallel

BUCKET = 1  # --bucket-cap-mb, in MiB
FLAGS = ["--size", "tiny", "--layers", "2", "--vocabulary", "50", "--batch", "2", "--length", "5"]


def exchanged(backend):
    """The bytes of each all-reduce in an update of two batches; of all parameters; the largest."""
    made = subject("roformer_base", *FLAGS)
    parameters = list(made.model.parameters())
    group = dist.new_group([0, 1])
    given = {"module": made.model, "process_group": group}
    if backend == "pytorch_ddp":  # as fairseq wraps it, but for the number of a GPU
        options = {"broadcast_buffers": False, "bucket_cap_mb": BUCKET}
        wrapped = DistributedDataParallel(**given, **options)
    else:
        wrapped = LegacyDistributedDataParallel(**given, buffer_size=2**28)
    made.model = ModuleProxyWrapper(wrapped)
    sizes = []
    if backend == "pytorch_ddp":

        def hook(_, bucket):
            sizes.append(size_of(bucket.buffer()))
            work = dist.all_reduce(bucket.buffer(), group=group, async_op=True)
            return work.get_future().then(lambda done: done.value()[0] / 2)

        wrapped.register_comm_hook(None, hook)
    else:
        real = dist.all_reduce
        dist.all_reduce = lambda x, **given: (sizes.append(size_of(x)), real(x, **given))
    step = made.training()
    for _ in range(2):  # after the first update PyTorch forms the buckets
        sizes.clear()
        with wrapped.no_sync():  # --update-freq 2
            step()
        step()
        if backend == "legacy_ddp":
            wrapped.all_reduce_grads()
    of_parameters = [size_of(p) for p in parameters]
    return sizes, sum(of_parameters), max(of_parameters)


@pytest.mark.parametrize("backend", ["pytorch_ddp", "legacy_ddp"])
def test_an_update_exchanges_every_gradient_once(backend, tmp_path):
    sizes, parameters, largest = answer_of_two(exchanged, tmp_path, backend)
    assert sum(sizes) == parameters
    if backend == "legacy_ddp":
        assert len(sizes) == 1  # all of it, after the backward pass
    else:
        # a bucket is closed by the parameter that fills it; the first is sent after 1 MiB
        assert len(sizes) > 1 and max(sizes) < BUCKET * 2**20 + largest
