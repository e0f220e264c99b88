"""Evaluating a classifier on another task than its checkpoint records."""

import re
from typing import Any, Mapping

from fairseq.criterions import CRITERION_DATACLASS_REGISTRY
from fairseq.tasks import TASK_DATACLASS_REGISTRY
from omegaconf import OmegaConf, open_dict

from fairseq_posenc.basics.errors import UsageError

_TASK = "sentence_prediction"
_OUTPUT = re.compile(r"classification_heads\.[^.]+\.out_proj\.weight$")


def change_task(checkpoint: Mapping[str, Any], overrides: Mapping[str, Any], path: str) -> None:
    """Replace the task of a checkpoint by ``--task sentence_prediction``, in place, if given.

    ``fairseq-validate`` builds the task that a checkpoint records and ignores its own ``--task``.
    An imported classifier records the task ``masked_lm``, since it was not trained by fairseq.

    Args:
        checkpoint: the contents of the file, as fairseq reads it.
        overrides: the flags of the command, by name; those of the task are applied later.
        path: the file, for the error message.

    Raises:
        UsageError: the model has no classification head.
    """
    cfg = checkpoint["cfg"]
    if overrides.get("task") != _TASK or getattr(cfg.task, "_name", None) != "masked_lm":
        return
    sizes = [len(value) for name, value in checkpoint["model"].items() if _OUTPUT.match(name)]
    if not sizes:
        raise UsageError(
            f"--task {_TASK}: {path} has no classification head; fine-tune it first, with "
            f"--finetune-from-model {path}"
        )
    criterion = overrides.get("criterion") or _TASK
    chosen = {
        "task": (_TASK, TASK_DATACLASS_REGISTRY),
        "criterion": (criterion, CRITERION_DATACLASS_REGISTRY),
    }
    with open_dict(cfg):
        for group, (name, registry) in chosen.items():
            if name in registry:
                cfg[group] = OmegaConf.structured(registry[name]())
                cfg[group]._name = name
        cfg.task.update(max_positions=cfg.model.max_positions, num_classes=sizes[0])
