"""The bytes that two processes exchange in a training step, as docs/gpu.md counts them.

fairscale, from which fairseq has FSDP, overlaps its work by streams of a GPU.  On a CPU one thing
happens after another, so stand-ins for streams leave out nothing but the overlap.
"""

import contextlib
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from fairseq.distributed import LegacyDistributedDataParallel, ModuleProxyWrapper
from support.two_processes import answer_of_two, size_of
from torch.nn.parallel import DistributedDataParallel

from subjects import TranslationSubject
from time_models import cases, get_parser

pytestmark = pytest.mark.properties

SMALL = [
    *("--size", "tiny", "--layers", "1", "--vocabulary", "50", "--batch", "3"),
    *("--length", "9", "7", "--repeat", "3", "--threads", "1", "--device", "cpu"),
]


def settings(job, *flags):
    """What the script makes of the flags, for one table."""
    return cases(get_parser().parse_args(["--jobs", job, *SMALL, *flags]))[0]


def subject(entry, *flags, kind=TranslationSubject, job="training"):
    """A model, of the sizes of :data:`SMALL` unless flags say otherwise."""
    return kind(entry, job, settings(job, *flags))


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


def without_streams(sharded):
    """Run fairscale's FSDP on a CPU."""
    stream = mock.Mock()
    torch.cuda.current_stream = lambda *device: stream
    torch.cuda.stream = lambda *stream: contextlib.nullcontext()
    torch.cuda.synchronize = lambda *device: None
    torch.Tensor.record_stream = lambda *stream: None
    streams = mock.MagicMock()
    streams.__getitem__.return_value = stream
    sharded._streams = property(lambda self: streams, lambda self, given: None)


def counted(name, place):
    """The bytes of argument *place* in each call of ``torch.distributed``'s *name* from now on."""
    sizes, real = [], getattr(dist, name)

    def noted(*args, **more):
        sizes.append(size_of(args[place]))
        return real(*args, **more)

    setattr(dist, name, noted)
    return sizes


def exchanged_of_shards(smallest):
    """The bytes of what an update gathers, of what it scatters, and of each unit."""
    from fairscale.nn import FullyShardedDataParallel
    from fairscale.nn.wrap import enable_wrap
    from fairseq import distributed

    without_streams(FullyShardedDataParallel)
    given = {
        "process_group": dist.group.WORLD,
        "process_group_reduce_scatter": dist.group.WORLD,
        "compute_device": torch.device("cpu"),
        "bucket_cap_mb": 0,
    }
    arch = f"roformer_base --min-params-to-wrap {smallest}"
    with enable_wrap(wrapper_cls=distributed.FullyShardedDataParallel, **given):
        made = subject(arch, *FLAGS)
        made.model = distributed.fsdp_wrap(made.model)
    units = [m for m in made.model.modules() if isinstance(m, FullyShardedDataParallel)]
    shards = [sum(size_of(p) for p in unit.params) for unit in units]  # half of each
    gathered, scattered = counted("_all_gather_base", 0), counted("_reduce_scatter_base", 1)
    step = made.training()
    for _ in range(2):
        gathered.clear()
        scattered.clear()
        step()
    return gathered, scattered, [2 * shard for shard in shards]


@pytest.mark.parametrize("smallest", [10**8, 1], ids=["default", "every_layer"])
def test_layers_are_gathered_twice_and_what_is_no_unit_once(smallest, tmp_path):
    pytest.importorskip("fairscale", reason="needs fairscale, as --ddp-backend fully_sharded does")
    gathered, scattered, units = answer_of_two(exchanged_of_shards, tmp_path, smallest)
    root, *layers = units
    assert len(layers) == (4 if smallest == 1 else 0)
    assert sorted(scattered) == sorted(units)
    assert sorted(gathered) == sorted([root, *layers, *layers])
