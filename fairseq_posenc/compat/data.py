"""Data sets and batches: no sentence lost, every epoch its own."""

from typing import Any, Callable, Iterable, List

import numpy as np
from fairseq.data.iterators import EpochBatchIterator

from fairseq_posenc.basics.errors import UsageError


def keep_last_batch(batch_by_size: Callable[..., List[Any]]) -> Callable[..., List[Any]]:
    """Restore the last batch, which fairseq main and fairseq-fixed drop.

    Measured: if the number of sentences left at the end is not a multiple of
    ``--required-batch-size-multiple`` (8 by default), ``batch_by_size`` drops the whole last batch
    of training, validation and test sets: 461 sentences in, 456 translations out.  fairseq 0.12.2
    keeps it.  The same lines fail with an IndexError on an empty set; with this it has no batches.
    A sentence longer than ``--max-tokens`` becomes a one-line error.
    """

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


def restart_workers(init: Callable[..., None]) -> Callable[..., None]:
    """Restart the data-loading workers in every epoch.

    Measured, fairseq 0.12.2 and fairseq-fixed 0.12.3.1 with ``--num-workers`` 1 or 2: the workers
    live as long as their loader, with the data set as it was in the first epoch, so that
    ``--task masked_lm`` repeats its masks in every epoch.  With ``--num-workers 0`` they differ.
    """

    def wrapper(iterator: EpochBatchIterator, *args: Any, **kwargs: Any) -> None:
        init(iterator, *args, **kwargs)
        iterator.persistent_workers = False  # fairseq-fixed
        iterator.reuse_dataloader = False  # 0.12.2 has no other way

    return wrapper
