"""Settings of a training that changed since its last checkpoint."""

import logging
from typing import Any, Dict, Mapping, Tuple

from omegaconf import OmegaConf

from fairseq_posenc.basics.errors import flag_of
from fairseq_posenc.flags.options import Options, by_name

logger = logging.getLogger(__name__)
#: Values before and now, by group and name.
Changes = Mapping[Tuple[str, str], Tuple[Any, Any]]

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


def changes(checkpoint: Mapping[str, Any], cfg: Options) -> Changes:
    """The settings that have other values than in the run that goes on.

    Args:
        checkpoint: the content of the file that the run goes on from.
        cfg: the configuration of the training.
    """
    container = OmegaConf.to_container(cfg, resolve=True, enum_to_str=True)
    before, now = _settings(checkpoint.get("cfg") or {}), _settings(container)
    both = {place: (before[place], now[place]) for place in before.keys() & now.keys()}
    return {place: values for place, values in both.items() if values[0] != values[1]}


def log_changes(path: str, changed: Changes) -> None:
    """Say in one line which flags have other values than in the run that goes on.

    fairseq goes on in silence.  It is no error: users change a learning rate on purpose.

    Args:
        path: the checkpoint that the run goes on from.
        changed: the result of :func:`changes`.
    """
    flags = {name: values for (_, name), values in changed.items() if not name.startswith("_")}
    said = [
        f"{flag_of(name)} {now} (before: {before})"
        for name, (before, now) in sorted(flags.items())
        if name not in _WITHOUT_EFFECT
    ]
    if said:
        logger.warning("%s: the training goes on with %s", path, ", ".join(said))


def _settings(cfg: Any) -> Dict[Tuple[str, str], Any]:
    """The settings of the groups, and the seed, by group and name."""
    found = {("common", "seed"): (cfg.get("common") or {}).get("seed")}
    for group in _GROUPS:
        settings = by_name(cfg.get(group))
        found.update({(group, name): value for name, value in settings.items()})
    return found
