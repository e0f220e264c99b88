"""Settings of a training that changed since its last checkpoint."""

import logging
from typing import Any, Dict, Mapping

from omegaconf import OmegaConf

from fairseq_posenc.basics.errors import flag_of
from fairseq_posenc.flags.options import Options

logger = logging.getLogger(__name__)

#: The groups of fairseq's configuration that a training depends on.
_GROUPS = ("optimization", "dataset", "optimizer", "lr_scheduler", "criterion", "model", "task")
#: Settings of these groups that change no parameter, or that a training is continued by.
_WITHOUT_EFFECT = {
    *("max_epoch", "max_update", "stop_time_hours", "stop_min_lr", "num_workers"),
    *("data_buffer_size", "valid_subset", "combine_valid_subsets", "ignore_unused_valid_subsets"),
    *("validate_interval", "validate_interval_updates", "validate_after_updates"),
    *("disable_validation", "max_tokens_valid", "batch_size_valid", "max_valid_steps"),
    *("fixed_validation_seed", "gen_subset", "num_shards", "shard_id", "report_accuracy"),
}


def log_changes(path: str, checkpoint: Mapping[str, Any], cfg: Options) -> None:
    """Say in one line which flags have other values than in the run that goes on.

    fairseq goes on in silence.  It is no error: users change a learning rate on purpose.

    Args:
        path: the checkpoint that the run goes on from.
        checkpoint: its content.
        cfg: the configuration of the training.
    """
    container = OmegaConf.to_container(cfg, resolve=True, enum_to_str=True)
    before, now = _settings(checkpoint.get("cfg") or {}), _settings(container)
    changed = [
        f"{flag_of(name)} {now[name]} (before: {before[name]})"
        for name in sorted(before.keys() & now.keys() - _WITHOUT_EFFECT)
        if before[name] != now[name]
    ]
    if changed:
        logger.warning("%s: the training goes on with %s", path, ", ".join(changed))


def _settings(cfg: Any) -> Dict[str, Any]:
    """The settings of the groups, and the seed."""
    found = {"seed": (cfg.get("common") or {}).get("seed")}
    for name in _GROUPS:
        group = cfg.get(name) or {}
        found.update(group if isinstance(group, dict) else vars(group))
    return {name: value for name, value in found.items() if not name.startswith("_")}
