"""Data sets and batches: no sentence lost, every epoch its own, one line for what is unusable."""

import os
import re
from typing import Any, Callable, Iterable, List

import numpy as np
from fairseq import utils
from fairseq.data import indexed_dataset
from fairseq.data.iterators import EpochBatchIterator
from fairseq.trainer import Trainer

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


def refuse_empty_split(make_dataset: Callable[..., Any]) -> Callable[..., Any]:
    """Name the split of a data set without a sentence.

    Measured: ``fairseq-preprocess`` silently accepts an empty file; reading the result ends with
    "cannot mmap an empty file" and a second error from a destructor.
    """

    def wrapper(path: str, *args: object, **kwargs: object) -> Any:
        data = indexed_dataset.data_file_path(path)
        if os.path.isfile(data) and os.path.getsize(data) == 0:
            raise UsageError(
                f"{data}: the {os.path.basename(path).split('.')[0]} split has no sentence; give "
                "fairseq-preprocess a text file with at least one line for it"
            )
        return make_dataset(path, *args, **kwargs)

    return wrapper


#: fairseq's message: the sample, its size, and the limit.
_TOO_LONG = re.compile(
    r"Size of sample #(\S+) is invalid \(=(.*)\) since max_positions=(.*), "
    "skip this example with --skip-invalid-size-inputs-valid-test"
)


def name_long_sentences(filter_by_size: Callable[..., Any]) -> Callable[..., Any]:
    """Name the flag if a sentence of a validation or test set is too long for the model.

    Measured: fairseq ends with "Size of sample is invalid" after a traceback, and advises to skip
    the sample, which changes what is measured.
    """

    def wrapper(*args: object, **kwargs: object) -> Any:
        try:
            return filter_by_size(*args, **kwargs)
        except Exception as error:
            found = _TOO_LONG.match(str(error))
            if found is None:
                raise
            sample, size, limit = found.groups()
            more = "a model with more positions (those of a table are set in training, such as by "
            more += "--tokens-per-sample)"
            if "(" in limit:  # of source and target
                more = "more --max-source-positions and --max-target-positions (for a trained "
                more += "model without a table of positions, in --model-overrides)"
            raise UsageError(
                f"sample {sample} of a validation or test set has {size} tokens, and task and "
                f"model take {limit}; give shorter texts, {more}, or leave such samples out by "
                "--skip-invalid-size-inputs-valid-test"
            ) from error

    return wrapper


def require_examples(get_iterator: Callable[..., Any]) -> Callable[..., Any]:
    """Name the flags if no example of a split fits the model.

    Measured: a training set of sentences that are all too long ends with an IndexError
    (fairseq-fixed) or "The dataset is empty" (0.12.2), each after a traceback.
    """

    def wrapper(trainer: Trainer, *args: object, **kwargs: object) -> Any:
        try:
            return get_iterator(trainer, *args, **kwargs)
        except Exception as error:
            if not str(error).startswith("The dataset is empty"):
                raise
            limit = utils.resolve_max_positions(
                trainer.task.max_positions(), trainer.model.max_positions()
            )
            split = args[0] if args and isinstance(args[0], str) else "training"
            most = trainer.cfg.dataset.max_tokens
            batch, also = "", ""
            if most is not None:
                batch, also = f" or than --max-tokens {most}", ", --max-tokens"
            raise UsageError(
                f"no example of the {split} split can be used: each is longer than the model's "
                f"positions {limit}{batch}; raise --max-source-positions, --max-target-positions, "
                f"--max-positions, --tokens-per-sample{also}, or split the sentences"
            ) from error

    return wrapper
