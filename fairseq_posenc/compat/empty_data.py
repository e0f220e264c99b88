"""One-line errors for data sets without a usable example."""

import os
from typing import Any, Callable

from fairseq import utils
from fairseq.data import indexed_dataset
from fairseq.tasks import FairseqTask
from fairseq.trainer import Trainer

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.compat.patching import wrap


def empty_data() -> None:
    """Name the split and the flag if a data set is empty or no example fits the model.

    Measured: ``fairseq-preprocess`` silently accepts an empty file; reading the result ends with
    "cannot mmap an empty file" and a second error from a destructor.  A training set of sentences
    that are all too long ends with an IndexError (fairseq-fixed) or "The dataset is empty"
    (0.12.2), a validation or test set with one such sentence with "Size of sample is invalid",
    each after a traceback.
    """
    wrap(indexed_dataset, "make_dataset", _not_empty)
    wrap(FairseqTask, "filter_indices_by_size", _one_line_for_long_sentences)
    wrap(Trainer, "get_train_iterator", _with_examples)
    wrap(Trainer, "get_valid_iterator", _with_examples)


def _not_empty(make_dataset: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(path: str, *args: object, **kwargs: object) -> Any:
        data = indexed_dataset.data_file_path(path)
        if os.path.isfile(data) and os.path.getsize(data) == 0:
            raise UsageError(
                f"{data}: the {os.path.basename(path).split('.')[0]} split has no sentence; give "
                "fairseq-preprocess a text file with at least one line for it"
            )
        return make_dataset(path, *args, **kwargs)

    return wrapper


def _one_line_for_long_sentences(filter_by_size: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(*args: object, **kwargs: object) -> Any:
        try:
            return filter_by_size(*args, **kwargs)
        except Exception as error:
            if "--skip-invalid-size-inputs-valid-test" in str(error):
                raise UsageError(str(error)) from error
            raise

    return wrapper


def _with_examples(get_iterator: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(trainer: Trainer, *args: object, **kwargs: object) -> Any:
        try:
            return get_iterator(trainer, *args, **kwargs)
        except Exception as error:
            if not str(error).startswith("The dataset is empty"):
                raise
            limit = utils.resolve_max_positions(
                trainer.task.max_positions(), trainer.model.max_positions()
            )
            raise UsageError(
                "no example of the {} split can be used: each is longer than the model's "
                "positions {} or than --max-tokens {}; raise --max-source-positions, "
                "--max-target-positions, --max-positions or --max-tokens, or split the "
                "sentences".format(
                    args[0] if args and isinstance(args[0], str) else "training",
                    limit,
                    trainer.cfg.dataset.max_tokens,
                )
            ) from error

    return wrapper
