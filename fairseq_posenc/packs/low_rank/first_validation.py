"""Validation before the first update, which fairseq does not have."""

from argparse import Namespace
from typing import Any, Callable

from fairseq.trainer import Trainer

from fairseq_posenc.flags.options import option


def validating_first(begin_epoch: Callable[..., Any]) -> Callable[..., Any]:
    """Validate a model with ``--validate-at-start`` when the first epoch of its training begins.

    The log has the result under update 0, in the form of later validations.  Training seeds its
    random numbers at each update, so the validation does not change the training.
    """

    def wrapper(trainer: Trainer, epoch: int) -> None:
        begin_epoch(trainer, epoch)
        cfg = trainer.cfg
        wanted = option(cfg.model, "validate_at_start") and not cfg.dataset.disable_validation
        if wanted and trainer.get_num_updates() == 0:
            from fairseq_cli.train import validate

            subsets = cfg.dataset.valid_subset.split(",")
            validate(cfg, trainer, trainer.task, Namespace(epoch=epoch), subsets)

    return wrapper
