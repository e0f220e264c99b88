"""Hooks into fairseq's loading of checkpoints."""

from typing import Any, Callable

from fairseq import checkpoint_utils, models
from fairseq.trainer import Trainer

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
