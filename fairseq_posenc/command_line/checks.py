"""Checks of Hydra's sections, of length limits, and of flags that do not work on this machine."""

import importlib.util
import os
import sys
from argparse import Namespace
from typing import Any, Callable, Dict, Iterable, Sequence

import torch
from fairseq import utils
from fairseq.dataclass.configs import FairseqConfig
from hydra.core.hydra_config import HydraConfig

from fairseq_posenc.basics.errors import UsageError, near
from fairseq_posenc.basics.packages import import_extra
from fairseq_posenc.checkpoints.reading import read_checkpoint
from fairseq_posenc.checkpoints.settings import task_of
from fairseq_posenc.compat.processes import launched_processes
from fairseq_posenc.flags.options import option
from fairseq_posenc.flags.values import read_overrides

_FOLDER = "checkpoint.save_dir"
#: For each folder: the overrides of the multirun job that this process has trained in it.
_begun: Dict[str, Sequence[str]] = {}


def checked(add_defaults: Callable[..., None]) -> Callable[..., None]:
    """Wrap ``add_defaults`` to refuse unknown sections, and the folder of another job.

    fairseq loads the ``common.user_dir`` after Hydra has composed the configuration, and then fills
    in the defaults of all sections; the sections are checked just before the defaults are filled.
    """

    def wrapper(cfg: Any) -> None:
        known = list(FairseqConfig.__dataclass_fields__)
        for section in cfg:
            # fairseq-hydra-train itself adds job_logging_cfg
            if section not in (*known, "job_logging_cfg"):
                raise UsageError(f"+{section}: not a fairseq section{near(str(section), known)}")
        if cfg.get("task") is None:
            raise UsageError(
                "task._name: missing; is --config-name the name of a file in --config-dir, without "
                ".yaml?"
            )
        if {"-m", "--multirun"}.intersection(sys.argv[1:]) and HydraConfig.initialized():
            _check_folder(str(cfg.checkpoint.save_dir))
        add_defaults(cfg)

    return wrapper


def _check_folder(folder: str) -> None:
    """Refuse a folder that two jobs of a multirun share: the second would continue the first."""
    job = tuple(HydraConfig.get().overrides.task)
    if _begun.setdefault(folder, job) != job:
        raise UsageError(
            f"{_FOLDER}={folder}: several jobs of the multirun share this folder; name each "
            f"folder after what differs, such as '{_FOLDER}=runs/${{model.position_encoding}}'"
        )


LIMITS = ("max_source_positions", "max_target_positions")


def take_limits(args: Namespace, names: Iterable[str]) -> None:
    """Set the limits in *args* to those with which the models of ``--path`` were trained.

    ``fairseq-generate`` and ``fairseq-interactive`` make a new task with limits of 1,024 tokens,
    however many the model accepts.  *names* are the :data:`LIMITS` that the user did not give.
    """
    paths = utils.split_paths(option(args, "path") or "")
    tasks = [task_of(read_checkpoint(path, lazy=True)) for path in paths if os.path.isfile(path)]
    overrides = read_overrides(option(args, "model_overrides") or "{}")
    for name in names:
        limits = [str(overrides.get(name, option(task, name))) for task in tasks]
        if limits and hasattr(args, name) and all(limit.isdigit() for limit in limits):
            setattr(args, name, min(map(int, limits)))


def allow_bfloat16(args: Namespace) -> None:
    """Let ``--bf16`` use a GPU or CPU; in fairseq it implies ``--tpu``, which needs torch_xla."""
    if option(args, "bf16") and importlib.util.find_spec("torch_xla") is None:
        args.tpu = False


def check_machine(args: Namespace) -> None:
    """Refuse training flags that do not work on this machine."""
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
            f"--quant-noise-scalar {noise}: fairseq supports it only on a GPU; drop it, or give "
            "--quant-noise-pq"
        )
    backend = option(args, "ddp_backend")
    if backend in ("fully_sharded", "slowmo"):
        import_extra("fairscale", f"--ddp-backend {backend}", "fairscale")
    if on_cpu:
        _check_processes(args)


def _check_processes(args: Namespace) -> None:
    """Refuse several processes on a CPU if they would not start, or not communicate."""
    launched, size = launched_processes(), args.distributed_world_size
    joined = args.distributed_no_spawn and args.distributed_init_method
    if size > 1 and launched == 1 and not joined and "SLURM_JOB_NODELIST" not in os.environ:
        raise UsageError(
            f"--distributed-world-size {size}: fairseq starts processes only for GPUs; on a CPU, "
            f"start them with torchrun --nproc-per-node {size} (docs/gpu.md)"
        )
    if max(size, launched) > 1 and args.distributed_backend == "nccl":
        raise UsageError(
            "--distributed-backend nccl: works only on GPUs; on a CPU, give gloo (docs/gpu.md)"
        )
