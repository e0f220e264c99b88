"""Training with several processes, and on a CPU."""

import os
from typing import Any, Callable, Iterable, Optional, Union

import torch
from torch import Tensor

_LAUNCHED = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK")


def launched_processes() -> int:
    """The number of processes started by torchrun or a similar launcher; 1 without a launcher."""
    launched = all(name in os.environ for name in _LAUNCHED)
    return int(os.environ["WORLD_SIZE"]) if launched else 1


def join_launched_processes(infer_init_method: Callable[..., None]) -> Callable[..., None]:
    """Let the processes that torchrun starts train one model, with and without GPUs.

    fairseq looks for torchrun only if ``--distributed-world-size``, which defaults to the number of
    GPUs, is above 1.  Measured: two processes started on a CPU without this flag train two
    models and write both to one folder; with the flag, they end with "integer modulo by zero".
    """

    def wrapper(cfg: Any, force_distributed: bool = False) -> None:
        processes = launched_processes()
        if processes > 1 and cfg.distributed_init_method is None and not cfg.tpu:
            cfg.distributed_world_size = processes
            if not torch.cuda.is_available():
                cfg.distributed_init_method, cfg.distributed_no_spawn = "env://", True
                cfg.distributed_rank = int(os.environ["RANK"])
                return
        infer_init_method(cfg, force_distributed)

    return wrapper


def exchange_on_cpu(data_parallel: Callable[..., Any]) -> Callable[..., Any]:
    """Let ``--ddp-backend pytorch_ddp`` wrap a model on a CPU.

    fairseq always passes the index of a GPU.  Measured with two processes on a CPU:
    "device_ids and output_device arguments only work with single-device/multiple-device GPU
    modules or CPU modules, but got device_ids [0]".
    """

    def wrapper(module: Any, **options: Any) -> Any:
        if all(parameter.device.type == "cpu" for parameter in module.parameters()):
            options.update(device_ids=None, output_device=None)
        return data_parallel(module, **options)

    return wrapper


def clip_where_gradients_are(clip: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Clip gradients with a norm that is computed on the device of the gradients.

    fairseq computes the norm on a GPU if there is one.  Measured with PyTorch 2.11: with ``--cpu``
    and ``--clip-norm``, the first update ends with "scalar tensor is expected to be on cpu".
    """

    def wrapper(
        params: Union[Tensor, Iterable[Tensor]],
        max_norm: float,
        aggregate_norm_fn: Optional[Callable[[Any], Any]] = None,
    ) -> Tensor:
        params = [params] if isinstance(params, Tensor) else list(params)
        given = [p.grad for p in params if p is not None and p.grad is not None]

        def aggregate(norm: Tensor) -> Tensor:  # called only if there are gradients
            norm = aggregate_norm_fn(norm) if aggregate_norm_fn else norm
            return norm.to(given[0].device)

        return clip(params, max_norm, aggregate)

    return wrapper
