"""Batching without losing sentences."""

from typing import Any, Callable, Iterable, List

import numpy as np
from fairseq.data import data_utils

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.compat.patching import wrap


def keep_every_sentence() -> None:
    """Restore the last batch, which fairseq main and fairseq-fixed drop.

    Measured: if the number of sentences left at the end is not a multiple of
    ``--required-batch-size-multiple`` (8 by default), ``batch_by_size`` drops the whole last batch
    of training, validation and test sets: 461 sentences in, 456 translations out.  fairseq 0.12.2
    keeps it.  The same lines fail with an IndexError on an empty set; with this it has no batches.
    A sentence longer than ``--max-tokens`` becomes a one-line error.
    """
    wrap(data_utils, "batch_by_size", _with_last_batch)


def _with_last_batch(batch_by_size: Callable[..., List[Any]]) -> Callable[..., List[Any]]:
    def wrapper(indices: Iterable[int], *args: object, **kwargs: object) -> List[Any]:
        if not isinstance(indices, np.ndarray):
            indices = np.fromiter(indices, dtype=np.int64, count=-1)
        if len(indices) == 0:
            return []
        try:
            batches = batch_by_size(indices, *args, **kwargs)
        except AssertionError as error:
            if "Sentences lengths should not exceed max_tokens" not in str(error):
                raise
            raise UsageError(
                f"{error}; raise --max-tokens (--max-tokens-valid while training) above the length "
                "of the longest sentence"
            ) from error
        kept = sum(len(batch) for batch in batches)  # batches are consecutive slices
        return batches if kept == len(indices) else [*batches, indices[kept:]]

    return wrapper
