"""Two processes of a group, which exchange tensors over gloo."""

import multiprocessing
from datetime import timedelta

import torch
import torch.distributed as dist


def answer_of_two(work, folder, *arguments):
    """What ``work(*arguments)`` returns in the first of two processes, which meet in a folder."""
    # a fork imports nothing again, but cannot have autograd's threads for a GPU
    context = multiprocessing.get_context("spawn" if torch.cuda.is_available() else "fork")
    ours, theirs = context.Pipe(duplex=False)
    more = (folder, theirs, work, arguments)
    group = [context.Process(target=_joined, args=(rank, *more)) for rank in (0, 1)]
    for process in group:
        process.start()
    theirs.close()  # so that a process that fails ends the wait
    assert ours.poll(300), "no answer within five minutes"
    answer = ours.recv()
    for process in group:
        process.join(300)
    assert [process.exitcode for process in group] == [0, 0]
    return answer


def size_of(tensor):
    """The bytes of a tensor; PyTorch 1.12 has no ``nbytes``."""
    return tensor.numel() * tensor.element_size()


def _joined(rank, folder, answers, work, arguments):
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "store"), 2)
    dist.init_process_group(
        "gloo", store=store, rank=rank, world_size=2, timeout=timedelta(minutes=5)
    )
    answer = work(*arguments)
    dist.barrier()
    if rank == 0:
        answers.send(answer)
