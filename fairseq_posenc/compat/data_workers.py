"""Processes that load data, and the epoch."""

from typing import Any, Callable

from fairseq.data.iterators import EpochBatchIterator

from fairseq_posenc.compat.patching import wrap


def data_workers_of_each_epoch() -> None:
    """Restart the data-loading workers in every epoch.

    Measured, fairseq-fixed 0.12.3.1 with ``--num-workers`` 1 or 2: they live as long as the
    iterator, with the data set as it was in the first epoch, so that ``--task masked_lm`` repeats
    its masks in every epoch.  With ``--num-workers 0`` they differ.
    """
    wrap(EpochBatchIterator, "__init__", _for_one_epoch)


def _for_one_epoch(init: Callable[..., None]) -> Callable[..., None]:
    def wrapper(iterator: EpochBatchIterator, *args: Any, **kwargs: Any) -> None:
        init(iterator, *args, **kwargs)
        iterator.persistent_workers = False

    return wrapper
