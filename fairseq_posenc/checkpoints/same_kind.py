"""The check that a resumed run goes on with the task, loss and optimiser that it began with."""

import os
from typing import Any, Mapping, NamedTuple

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.flags.options import Options, option


class _Kind(NamedTuple):
    """A setting that a run cannot change.

    Args:
        flag: its flag.
        group: the group of fairseq's configuration that has it.
        name: its name there.
        reset: the setting that drops what depends on it from the checkpoint, or "".
    """

    flag: str
    group: str
    name: str
    reset: str


_KINDS = (
    _Kind("--task", "task", "_name", ""),
    _Kind("--source-lang", "task", "source_lang", ""),
    _Kind("--target-lang", "task", "target_lang", ""),
    _Kind("--pairs", "task", "pairs", ""),
    _Kind("--unit", "task", "unit", ""),
    _Kind("--static-masks", "task", "static_masks", ""),
    _Kind("--masking", "task", "masking", ""),
    _Kind("--span-boundary-objective", "task", "span_boundary_objective", ""),
    _Kind("--criterion", "criterion", "_name", "reset_optimizer"),
    _Kind("--optimizer", "optimizer", "_name", "reset_optimizer"),
    _Kind("--lr-scheduler", "lr_scheduler", "_name", "reset_lr_scheduler"),
)


def check_same_kind(path: str, checkpoint: Mapping[str, Any], cfg: Options) -> None:
    """Refuse to resume a run with another task, languages, samples, loss, optimiser or schedule.

    fairseq continues with some of them, and stops with a traceback for others.

    Args:
        path: the checkpoint, in the run's own folder.
        checkpoint: its content.
        cfg: fairseq's complete configuration.

    Raises:
        UsageError: naming the flag, both values, and the remedies.
    """
    saved = checkpoint.get("cfg") or {}
    for kind in _KINDS:
        before = _value(saved.get(kind.group), kind.name)
        now = _value(option(cfg, kind.group), kind.name)
        dropped = kind.reset and option(cfg.checkpoint, kind.reset)
        if None not in (before, now) and before != now and not dropped:
            reset = f", or --{kind.reset.replace('_', '-')} to go on here" if kind.reset else ""
            raise UsageError(
                f"{kind.flag} {now}: the run in {os.path.dirname(path) or '.'} was trained with "
                f"{before}; give another --save-dir, and --finetune-from-model {path} to start "
                f"from its parameters{reset}"
            )


def _value(group: Any, name: str) -> Any:
    return group.get(name) if isinstance(group, Mapping) else option(group, name)
