"""What changed in NumPy 2 and PyTorch 2, for functions of fairseq that rely on it."""

import inspect
import types
from typing import Any, Callable, Iterable, Optional, Union

import numpy as np
from torch import Tensor


def numpy_compat_long() -> None:
    """Restore ``np.compat.long``, which NumPy 2.0 removed.

    Measured: ``--sample-break-mode eos`` (masked_lm, language_modeling) and
    ``--num-batch-buckets`` stop with "module 'numpy' has no attribute 'compat'".
    """
    if not hasattr(np, "compat"):
        np.compat = types.SimpleNamespace(long=int)  # type: ignore[attr-defined]


def buckets_by_method(get_buckets: Callable[..., Any]) -> Callable[..., Any]:
    """Compute ``--num-batch-buckets`` without ``np.percentile(interpolation=)``.

    Measured: NumPy 2.4 removed that argument.  NumPy's own function is not changed.
    """
    has_argument = "interpolation" in inspect.signature(np.percentile).parameters
    return get_buckets if has_argument else _buckets


def _buckets(sizes: np.ndarray, num_buckets: int) -> Any:
    shares = np.linspace(0, 100, num_buckets + 1)[1:]
    return np.unique(np.percentile(sizes, shares, method="lower"))


def clip_where_gradients_are(clip: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Clip gradients by a norm on their own device.

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

        def aggregate(norm: Tensor) -> Tensor:  # fairseq calls it if there are gradients
            norm = aggregate_norm_fn(norm) if aggregate_norm_fn else norm
            return norm.to(given[0].device)

        return clip(params, max_norm, aggregate)

    return wrapper
