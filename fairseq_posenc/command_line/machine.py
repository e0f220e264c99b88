"""What a training asks of the machine: precisions, packages and processes that have to be there."""

import importlib.util
import os
from argparse import Namespace

import torch

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.packages import import_extra
from fairseq_posenc.compat.processes import launched_processes
from fairseq_posenc.flags.options import option


def allow_bfloat16(args: Namespace) -> None:
    """Let ``--bf16`` use a GPU or a CPU: fairseq's implies ``--tpu``, which needs torch_xla.

    Args:
        args: a parsed command line of fairseq's; ``tpu`` is changed in place.
    """
    if option(args, "bf16") and importlib.util.find_spec("torch_xla") is None:
        args.tpu = False


def check_machine(args: Namespace) -> None:
    """Refuse flags of a training that this machine cannot follow."""
    if not option(args, "optimizer"):
        return
    on_cpu = option(args, "cpu") or not torch.cuda.is_available()
    if option(args, "fp16") and option(args, "cpu") and not option(args, "memory_efficient_fp16"):
        raise UsageError(
            "--fp16: does not work with --cpu in training; drop one of the two, or give "
            "--memory-efficient-fp16"
        )
    if option(args, "amp") and on_cpu:
        raise UsageError("--amp: has no effect on a CPU; drop it, or give --bf16")
    noise = option(args, "quant_noise_scalar")
    if noise and on_cpu:
        raise UsageError(
            f"--quant-noise-scalar {noise}: fairseq computes it on a GPU alone; drop it, or give "
            "--quant-noise-pq"
        )
    backend = option(args, "ddp_backend")
    if backend in ("fully_sharded", "slowmo"):
        import_extra("fairscale", f"--ddp-backend {backend}", "fairscale")
    if on_cpu:
        _check_processes(args)


def _check_processes(args: Namespace) -> None:
    """Refuse a group of processes that would not start, or not exchange anything, on a CPU."""
    launched, size = launched_processes(), args.distributed_world_size
    joined = args.distributed_no_spawn and args.distributed_init_method
    if size > 1 and launched == 1 and not joined and "SLURM_JOB_NODELIST" not in os.environ:
        raise UsageError(
            f"--distributed-world-size {size}: fairseq starts processes for GPUs alone; on a CPU, "
            f"start them by torchrun --nproc-per-node {size} (docs/gpu.md)"
        )
    if max(size, launched) > 1 and args.distributed_backend == "nccl":
        raise UsageError(
            "--distributed-backend nccl: connects GPUs alone; on a CPU, give gloo (docs/gpu.md)"
        )
