"""Data sets and batches: last batches, workers, masks of whole words, and NumPy 2."""

import inspect
import types
from typing import Any, Callable, Iterable, List, Optional

import numpy as np
from fairseq.data.iterators import EpochBatchIterator
from fairseq.tasks import FairseqTask
from fairseq.tasks.masked_lm import MaskedLMTask
from omegaconf import OmegaConf

from fairseq_posenc.basics.errors import UsageError


def keep_last_batch(batch_by_size: Callable[..., List[Any]]) -> Callable[..., List[Any]]:
    """Restore the last batch, which fairseq main and fairseq-fixed drop.

    Measured: if the number of sentences left at the end is not a multiple of
    ``--required-batch-size-multiple`` (8 by default), ``batch_by_size`` drops the whole last batch
    of training, validation and test sets: 461 sentences in, 456 translations out.  fairseq 0.12.2
    keeps it.  On an empty set, the same lines raise an IndexError; the repair returns no batches.
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
                f"{error}; raise --max-tokens (or, for the validation sets of a training, "
                "--max-tokens-valid) to at least the length of the longest sentence"
            ) from error
        kept = sum(len(batch) for batch in batches)  # batches are consecutive slices
        return batches if kept == len(indices) else [*batches, indices[kept:]]

    return wrapper


def restart_workers(init: Callable[..., None]) -> Callable[..., None]:
    """Restart the data-loading workers in every epoch.

    Measured with fairseq 0.12.2 and fairseq-fixed 0.12.3.1 with ``--num-workers`` 1 or 2: workers
    live on with the data set as it was in the first epoch, so ``--task masked_lm`` repeats the same
    masks in every epoch.  With ``--num-workers 0``, the masks of the epochs differ.
    """

    def wrapper(iterator: EpochBatchIterator, *args: Any, **kwargs: Any) -> None:
        init(iterator, *args, **kwargs)
        iterator.persistent_workers = False  # fairseq-fixed
        iterator.reuse_dataloader = False  # 0.12.2 has no other switch

    return wrapper


def mask_whole_words() -> None:
    """Let ``--task masked_lm`` find the flags of ``--bpe``, which tells where words begin.

    fairseq 0.12.2 and fairseq-fixed read ``self.args`` for ``--mask-whole-words`` and never set it,
    so the flag fails with "no attribute 'args'".
    """
    if not hasattr(MaskedLMTask, "args"):
        MaskedLMTask.args = _FlagsOfBPE()


def bpe_flags(task: FairseqTask) -> Optional[Any]:
    """The settings of ``--bpe``, found through the configuration of *task*; None if not set."""
    parent = task.cfg._get_parent() if OmegaConf.is_config(task.cfg) else None
    flags = None if parent is None else parent.get("bpe")
    return None if flags is None or flags.get("_name") is None else flags


class _FlagsOfBPE:
    """Descriptor for ``task.args``: the settings of ``--bpe``, which the task does not hold."""

    def __get__(self, task: Optional[MaskedLMTask], owner: Any = None) -> Any:
        if task is None:
            return self
        flags = bpe_flags(task)
        if flags is None:
            raise UsageError(
                "--mask-whole-words: needs --bpe, for example gpt2, to find where words begin"
            )
        return flags


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
