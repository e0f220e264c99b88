"""Checks around ``fairseq.models.build_model``."""

import logging
from typing import Any, Callable

from fairseq.tasks import FairseqTask
from omegaconf import OmegaConf

from fairseq_posenc.checkpoints.settings import needs_segments
from fairseq_posenc.configuration.resolve import fill_missing, open_config
from fairseq_posenc.flags.options import Options

logger = logging.getLogger(__name__)


def built(build_model: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``fairseq.models.build_model``.

    Under ``fairseq-hydra-train`` it passes a copy of the configuration to models that have a
    dataclass, so derived settings (such as the length in training, which YaRN needs later) would be
    missing from the checkpoint; the wrapper copies them back.  In models built for a checkpoint it
    requires the position state to match, since only ``--model-overrides`` could change it.
    """

    def wrapper(cfg: Options, task: FairseqTask, from_checkpoint: bool = False) -> Any:
        if from_checkpoint:
            _keep_single_segment(cfg)
        model = build_model(cfg, task, from_checkpoint)
        completed: Any = getattr(model, "completed_settings", cfg)
        if OmegaConf.is_config(cfg) and completed is not cfg:
            fill_missing(cfg, completed)
        if from_checkpoint:
            for module in model.modules():
                if hasattr(module, "strict_positions"):
                    module.strict_positions = True
                    module.strict_advice = "drop the --model-overrides that ask for that"
        return model

    return wrapper


def _keep_single_segment(cfg: Options) -> None:
    """Give a checkpoint older than ``--segments`` the value it was trained with."""
    # in omegaconf 2.0, of official fairseq, DictConfig.get() fails for names that are not there
    settings: Any = OmegaConf.to_container(cfg) if OmegaConf.is_config(cfg) else vars(cfg)
    if needs_segments(settings):
        logger.warning(
            "the checkpoint is older than --segments: all tokens are in segment 0, as in its "
            "training; if it was imported, import it again"
        )
        with open_config(cfg):
            cfg.segments = "single"
