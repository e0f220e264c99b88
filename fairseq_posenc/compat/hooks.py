"""Hooks into fairseq's command lines, its loading of checkpoints, and its steps."""

from typing import Any, Callable, Optional

from fairseq import checkpoint_utils, models, options
from fairseq.tasks import FairseqTask
from fairseq.trainer import Trainer
from hydra._internal import utils as hydra_utils

from fairseq_posenc.compat.patching import wrap

Wrapper = Callable[[Callable[..., Any]], Callable[..., Any]]


def hook_checkpoints(
    reading: Wrapper, building: Wrapper, restoring: Wrapper, saving: Wrapper, built: Wrapper
) -> None:
    """Wrap the functions of fairseq that read, restore and save checkpoints.

    Args:
        reading: around ``load_checkpoint_to_cpu``, which reads one file.
        building: around ``load_model_ensemble_and_task``, of generate, interactive, validate and
            eval-lm.
        restoring: around ``load_checkpoint``, which starts or resumes a run.
        saving: around ``Trainer.state_dict``, the content of a checkpoint.
        built: around ``models.build_model``.
    """
    wrap(checkpoint_utils, "load_checkpoint_to_cpu", reading)
    wrap(checkpoint_utils, "load_model_ensemble_and_task", building)
    wrap(checkpoint_utils, "load_checkpoint", restoring)
    wrap(Trainer, "state_dict", saving)
    wrap(models, "build_model", built)


def hook_steps(step: Wrapper) -> None:
    """Wrap the two methods of a task that pass a batch to the criterion.

    Args:
        step: around ``train_step`` and ``valid_step``, whose first arguments are the task, the
            batch and the model.
    """
    wrap(FairseqTask, "train_step", step)
    wrap(FairseqTask, "valid_step", step)


def hook_commands(parsing: Wrapper, known_error: Callable[[], Optional[BaseException]]) -> None:
    """Hook into fairseq's command lines.

    Args:
        parsing: around ``parse_args_and_arch``.
        known_error: returns the one-line error for the exception being handled, or None; Hydra,
            which prints a traceback for every exception, then raises that instead.
    """
    wrap(options, "parse_args_and_arch", parsing)

    def raising(is_env_set: Callable[[str], bool]) -> Callable[[str], bool]:
        # the first function that run_and_report calls once it has caught an exception
        def wrapper(name: str) -> bool:
            error = known_error()
            if error is not None:
                raise error from None
            return is_env_set(name)

        return wrapper

    if hasattr(hydra_utils, "_is_env_set"):
        wrap(hydra_utils, "_is_env_set", raising)
