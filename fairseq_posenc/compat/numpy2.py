"""Functions removed in NumPy 2 that fairseq's text tasks use."""

import inspect
import types
from typing import Any, Callable

import numpy as np
from fairseq.data import bucket_pad_length_dataset, data_utils  # noqa: F401 (holds get_buckets)

from fairseq_posenc.compat.patching import wrap


def numpy_compat_long() -> None:
    """Restore ``np.compat.long``, which NumPy 2.0 removed.

    Measured: ``--sample-break-mode eos`` (masked_lm, language_modeling) and
    ``--num-batch-buckets`` stop with "module 'numpy' has no attribute 'compat'".
    """
    if not hasattr(np, "compat"):
        np.compat = types.SimpleNamespace(long=int)  # type: ignore[attr-defined]


def percentile_interpolation() -> None:
    """Compute ``--num-batch-buckets`` without ``np.percentile(interpolation=)``.

    Measured: NumPy 2.4 removed that argument.  NumPy's own function is not changed.
    """
    if "interpolation" not in inspect.signature(np.percentile).parameters:
        wrap(data_utils, "get_buckets", _with_method)


def _with_method(_original: Callable[..., Any]) -> Callable[..., Any]:
    def get_buckets(sizes: np.ndarray, num_buckets: int) -> Any:
        shares = np.linspace(0, 100, num_buckets + 1)[1:]
        return np.unique(np.percentile(sizes, shares, method="lower"))

    return get_buckets
