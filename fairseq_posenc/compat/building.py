"""Building models: derived settings reach the checkpoint, evaluation starts nothing untrained."""

from typing import Any, Callable

from fairseq import models
from omegaconf import OmegaConf

from fairseq_posenc.compat.patching import wrap


def settings_of_built_models() -> None:
    """Complete the settings that ``fairseq.models.build_model`` got, and fix those of checkpoints.

    Under ``fairseq-hydra-train`` it hands a copy of the configuration to models that have a
    dataclass, so what they derive (such as the length of training, which YaRN needs later) would
    be missing from the checkpoint.

    It also knows which models are built to evaluate a checkpoint.  Those have to find all their
    position state there, and use all of it: a difference can only come from
    ``--model-overrides``, and would give wrong numbers.
    """
    wrap(models, "build_model", _completing)


def _completing(build_model: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(cfg: Any, task: Any, from_checkpoint: bool = False) -> Any:
        model = build_model(cfg, task, from_checkpoint)
        completed = getattr(model, "completed_settings", cfg)
        if OmegaConf.is_config(cfg) and completed is not cfg:
            from fairseq_posenc.config import fill  # needs a repaired fairseq

            fill(cfg, completed)
        if from_checkpoint:
            for module in model.modules():
                if hasattr(module, "refuse_other_positions"):
                    module.refuse_other_positions = "drop the --model-overrides that ask for that"
        return model

    return wrapper
