"""Hooks into fairseq's loading of checkpoints, and into its steps."""

from typing import Any, Callable

from fairseq import checkpoint_utils, models
from fairseq.tasks import FairseqTask

from fairseq_posenc.compat.patching import wrap

Wrapper = Callable[[Callable[..., Any]], Callable[..., Any]]


def hook_checkpoints(
    reading: Wrapper, building: Wrapper, restoring: Wrapper, built: Wrapper
) -> None:
    """Wrap the functions of fairseq that read and restore checkpoints.

    Args:
        reading: around ``load_checkpoint_to_cpu``, which reads one file.
        building: around ``load_model_ensemble_and_task``, of generate, interactive, validate and
            eval-lm.
        restoring: around ``load_checkpoint``, which starts or resumes a run.
        built: around ``models.build_model``.
    """
    wrap(checkpoint_utils, "load_checkpoint_to_cpu", reading)
    wrap(checkpoint_utils, "load_model_ensemble_and_task", building)
    wrap(checkpoint_utils, "load_checkpoint", restoring)
    wrap(models, "build_model", built)


def hook_steps(step: Wrapper) -> None:
    """Wrap the two methods of a task that pass a batch to the criterion.

    Args:
        step: around ``train_step`` and ``valid_step``, whose first arguments are the task, the
            batch and the model.
    """
    wrap(FairseqTask, "train_step", step)
    wrap(FairseqTask, "valid_step", step)
