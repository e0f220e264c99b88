"""Clipping gradients on the CPU of a machine with a GPU."""

from typing import Any, Callable, Iterable, Optional, Union

from fairseq import utils
from torch import Tensor

from fairseq_posenc.compat.patching import wrap


def clip_where_gradients_are() -> None:
    """Clip gradients by a norm on their own device.

    fairseq computes the norm on a GPU if there is one.  Measured with PyTorch 2.11: with ``--cpu``
    and ``--clip-norm``, the first update ends with "scalar tensor is expected to be on cpu".
    """
    wrap(utils, "clip_grad_norm_", _on_their_device)


def _on_their_device(clip: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def wrapper(
        params: Union[Tensor, Iterable[Tensor]],
        max_norm: float,
        aggregate_norm_fn: Optional[Callable[[Any], Any]] = None,
    ) -> Tensor:
        params = [params] if isinstance(params, Tensor) else list(params)
        given = [p.grad for p in params if p is not None and p.grad is not None]

        def aggregate(norm: Tensor) -> Tensor:  # fairseq calls it if there are gradients
            norm = aggregate_norm_fn(norm) if aggregate_norm_fn else norm
            return norm.to(given[0].device)

        return clip(params, max_norm, aggregate)

    return wrapper
