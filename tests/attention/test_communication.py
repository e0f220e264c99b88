"""The bytes that two processes exchange in a training step, as docs/scaling.md counts them."""

import multiprocessing
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from fairseq.distributed import LegacyDistributedDataParallel, ModuleProxyWrapper
from support.benchmark_runs import completed
from torch.nn.parallel import DistributedDataParallel

from fairseq_posenc.benchmark.models import TranslationSubject

BUCKET = 1  # --bucket-cap-mb, in MiB
FLAGS = ["--size", "tiny", "--layers", "2", "--vocabulary", "50", "--batch", "2", "--length", "5"]


def exchanged(rank, folder, backend, answers):
    """Send the bytes of each all-reduce in an update of two batches, and of the parameters."""
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / backend), 2)
    dist.init_process_group(
        "gloo", store=store, rank=rank, world_size=2, timeout=timedelta(minutes=5)
    )
    subject = TranslationSubject("roformer_base", completed(*FLAGS))
    parameters = list(subject.model.parameters())
    group = dist.new_group([0, 1])
    given = {"module": subject.model, "process_group": group}
    if backend == "pytorch_ddp":  # as fairseq wraps it, but for the number of a GPU
        options = {"broadcast_buffers": False, "bucket_cap_mb": BUCKET}
        wrapped = DistributedDataParallel(**given, **options)
    else:
        wrapped = LegacyDistributedDataParallel(**given, buffer_size=2**28)
    subject.model = ModuleProxyWrapper(wrapped)
    sizes = []
    if backend == "pytorch_ddp":

        def hook(_, bucket):
            sizes.append(bucket.buffer().nbytes)
            work = dist.all_reduce(bucket.buffer(), group=group, async_op=True)
            return work.get_future().then(lambda done: done.value()[0] / 2)

        wrapped.register_comm_hook(None, hook)
    else:
        real = dist.all_reduce
        dist.all_reduce = lambda x, **given: (sizes.append(x.nbytes), real(x, **given))
    step = subject.training()
    for _ in range(2):  # after the first update PyTorch forms the buckets
        sizes.clear()
        with wrapped.no_sync():  # --update-freq 2
            step()
        step()
        if backend == "legacy_ddp":
            wrapped.all_reduce_grads()
    dist.barrier()
    if rank == 0:
        largest = max(p.nbytes for p in parameters)
        answers.send((sizes, sum(p.nbytes for p in parameters), largest))


@pytest.mark.parametrize("backend", ["pytorch_ddp", "legacy_ddp"])
def test_an_update_exchanges_every_gradient_once(backend, tmp_path):
    # a fork imports nothing again, but cannot have autograd's threads for a GPU
    context = multiprocessing.get_context("spawn" if torch.cuda.is_available() else "fork")
    ours, theirs = context.Pipe(duplex=False)
    group = [
        context.Process(target=exchanged, args=(rank, tmp_path, backend, theirs)) for rank in (0, 1)
    ]
    for process in group:
        process.start()
    theirs.close()  # so that a process that fails ends the wait
    assert ours.poll(300), "no answer within five minutes"
    sizes, parameters, largest = ours.recv()
    for process in group:
        process.join(300)
    assert [process.exitcode for process in group] == [0, 0]
    assert sum(sizes) == parameters
    if backend == "legacy_ddp":
        assert len(sizes) == 1  # all of it, after the backward pass
    else:
        # a bucket is closed by the parameter that fills it; the first is sent after 1 MiB
        assert len(sizes) > 1 and max(sizes) < BUCKET * 2**20 + largest
