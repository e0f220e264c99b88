"""Training from a checkpoint: checks of its settings and state, and the training length.

A model without a table of positions can be trained in stages with different sequence lengths
(RoFormer Table 4: 512, 1536, 256, 128, 1536, 512).  Its training length is the longest of these,
even if the last stage had shorter sequences.
"""

import logging
import math
import os
from types import SimpleNamespace
from typing import Any, Callable, Dict, Mapping, Tuple

from fairseq.file_io import PathManager
from fairseq.trainer import Trainer
from omegaconf import OmegaConf

from fairseq_posenc.basics.errors import UsageError, flag_of
from fairseq_posenc.checkpoints.inherit import BY_TASK, HEADS, is_fine_tuning
from fairseq_posenc.checkpoints.reading import model_settings, read_checkpoint, reason_of
from fairseq_posenc.checkpoints.settings import (
    architecture,
    differences,
    is_ours,
    saved_settings,
    settings_by_role,
)
from fairseq_posenc.configuration.fields import plug_in_flags
from fairseq_posenc.configuration.resolve import open_config
from fairseq_posenc.encodings import all_encodings
from fairseq_posenc.flags.options import Layer, Options, by_name, option

logger = logging.getLogger(__name__)
#: Maps the group and name of a changed setting to its values before and now.
Changes = Mapping[Tuple[str, str], Tuple[Any, Any]]

#: errors that fairseq raises for unexpected content of a checkpoint
_OF_CONTENT = (AssertionError, AttributeError, LookupError, TypeError, ValueError)
#: settings that only record the length of training sequences
_LENGTHS = ("rotary_original_length", "num_positions")
#: The groups of fairseq's configuration that a training depends on.
_GROUPS = ("optimization", "dataset", "optimizer", "lr_scheduler", "criterion", "model", "task")
#: Settings of these groups that change no parameter, or that extend a training.
_WITHOUT_EFFECT = {
    *("max_epoch", "max_update", "stop_time_hours", "stop_min_lr", "num_workers"),
    *("data_buffer_size", "valid_subset", "combine_valid_subsets", "ignore_unused_valid_subsets"),
    *("validate_interval", "validate_interval_updates", "validate_after_updates"),
    *("disable_validation", "max_tokens_valid", "batch_size_valid", "max_valid_steps"),
    *("fixed_validation_seed", "gen_subset", "num_shards", "shard_id", "report_accuracy"),
}
#: Flags that a resumed run cannot change.  Each entry has the flag, its group and name in fairseq's
#: configuration, and the reset setting that permits the change, or "".  Packs add entries.
FIXED = [
    ("--task", "task", "_name", ""),
    ("--source-lang", "task", "source_lang", ""),
    ("--target-lang", "task", "target_lang", ""),
    ("--criterion", "criterion", "_name", "reset_optimizer"),
    ("--optimizer", "optimizer", "_name", "reset_optimizer"),
    ("--lr-scheduler", "lr_scheduler", "_name", "reset_lr_scheduler"),
]


def changes(checkpoint: Mapping[str, Any], cfg: Options) -> Changes:
    """The settings whose values in *cfg* differ from those in the *checkpoint* to resume from."""
    container = OmegaConf.to_container(cfg, resolve=True, enum_to_str=True)
    return differences(_by_group(checkpoint.get("cfg") or {}), _by_group(container))


def _by_group(cfg: Any) -> Dict[Tuple[str, str], Any]:
    """The settings that a training depends on, by group and name."""
    settings = {("common", "seed"): (cfg.get("common") or {}).get("seed")}
    for group in _GROUPS:
        settings.update({(group, name): x for name, x in by_name(cfg.get(group)).items()})
    return settings


def log_changes(path: str, changed: Changes) -> None:
    """Log one line with all flags whose values have changed since the run began.

    fairseq does not report changes.  They are no errors: users change a learning rate on purpose.
    """
    flags = {name: values for (_, name), values in changed.items() if not name.startswith("_")}
    said = [
        f"{flag_of(name)} {now} (before: {before})"
        for name, (before, now) in sorted(flags.items())
        if name not in _WITHOUT_EFFECT
    ]
    if said:
        logger.warning("%s: the training continues with %s", path, ", ".join(said))


def check_same_kind(path: str, changed: Changes, cfg: Options) -> None:
    """Refuse to resume a run if a flag in :data:`FIXED`, such as the task, has changed.

    After some of these changes fairseq would continue; after others it would raise an exception.
    """
    for flag, group, name, reset in FIXED:
        before, now = changed.get((group, name), (None, None))
        dropped = reset and option(cfg.checkpoint, reset)
        if None not in (before, now) and not dropped:
            instead = f", or {flag_of(reset)} to continue this run" if reset else ""
            raise _changed(flag, now, before, path, instead)


def check_settings_of(
    path: str, checkpoint: Mapping[str, Any], cfg: Options, resumes: bool
) -> bool:
    """Compare the settings of an initial checkpoint with the settings of the model to train.

    Settings that add no parameters cannot be checked in any other way.

    Returns:
        True for a warm start: from a stock checkpoint, or with other settings, which are logged.

    Raises:
        UsageError: the settings differ, and the run resumes or fine-tunes; or the rotary scaling
            assumes a different training length.
    """
    if option(cfg.model, "position_encoding") is None:  # fairseq's own model
        return False
    saved, ours = saved_settings(checkpoint), plug_in_flags()
    if not is_ours(saved):
        return True
    trained = settings_by_role(checkpoint, options=cfg.model)
    free = {n: saved[n] for n in ours if ours[n].metadata["role"] == "free" and n in saved}
    before = {**trained, **free}
    defaults = {n: field.metadata["default"] for n, field in ours.items() if n not in cfg.model}
    changed = differences(before, {n: defaults.get(n, option(cfg.model, n)) for n in before})
    if _accepts_any_length(cfg.model):
        changed = {n: both for n, both in changed.items() if n not in _LENGTHS}
    accepted = set(HEADS)
    if not resumes:  # fine-tuning leaves out modules of pre-training, with their settings
        accepted |= {BY_TASK} | {name for name in changed if name not in cfg.model}
    refused = [name for name in changed if name in trained and name not in accepted]
    said = {name: f"{flag_of(name)} {was} -> {now}" for name, (was, now) in changed.items()}
    if refused and is_fine_tuning(cfg.task):
        raise UsageError(
            f"{path}: was trained with other settings ({', '.join(said[n] for n in refused)}); use "
            "--arch posenc_masked_lm without these flags; under Hydra, set the former values"
        )
    if refused and resumes:
        value, now = changed[refused[0]]
        raise _changed(flag_of(refused[0]), now, value, path)
    for difference in said.values():
        logger.warning("warm start: %s", difference)
    length, taken = saved.get("rotary_original_length"), cfg.model.rotary_original_length
    if cfg.model.rotary_scaling != "none" and length is not None and length != taken:
        raise UsageError(
            f"--rotary-scaling {cfg.model.rotary_scaling}: {path} was trained on texts of "
            f"{length} tokens, but its frequencies would be scaled as if for {taken}; give "
            f"--rotary-original-length {length}"
        )
    return bool(changed)


def explain_restoring(load_checkpoint: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``Trainer.load_checkpoint`` to say in one line why a training cannot start from a file.

    The assertions and errors that it raises for unexpected content are not defects of the program.
    """

    def wrapper(trainer: Trainer, path: str, *args: object, **kwargs: object) -> Any:
        try:
            return load_checkpoint(trainer, path, *args, **kwargs)
        except UsageError:
            raise
        except Exception as error:
            if str(error).startswith("Cannot load model parameters from"):
                raise _misfit(path, trainer.cfg.model, error.__context__ or error) from error
            if isinstance(error, _OF_CONTENT):
                raise UsageError(
                    f"{path}: the state of its training cannot be restored ({reason_of(error)}); "
                    f"start with --finetune-from-model {path} in a new --save-dir, or give "
                    "--reset-optimizer, --reset-lr-scheduler, --reset-meters and --reset-dataloader"
                ) from error
            raise

    return wrapper


def _misfit(path: str, model: Options, cause: BaseException) -> UsageError:
    """An error that names the parameter that does not fit *model*; fairseq's error does not."""
    if isinstance(cause, UsageError):
        return cause
    checkpoint = read_checkpoint(PathManager.get_local_path(path), lazy=True)
    sizes = [
        f"{flag_of(name)} {value}"
        for name, value in settings_by_role(checkpoint).items()
        if type(value) is int and option(model, name, value) != value  # True and False are no sizes
    ]
    return UsageError(
        f"{path}: its parameters do not fit this model (first difference: "
        f"{first_mismatch(cause)}); it is of --arch {architecture(model_settings(checkpoint))}; "
        f"give its {' '.join(sizes) or 'flags and dictionaries'}"
    )


def first_mismatch(error: BaseException) -> str:
    """The first parameter in PyTorch's error about a state dict, and what is wrong with it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [repr(error)]
    listed, comma, _ = lines[min(1, len(lines) - 1)].partition('", "')
    return listed[:300].rstrip(".") + ('"' if comma else "")


def keep_longest(model: Layer, settings: Options, saved: Mapping[str, Any]) -> None:
    """Set the training length in *model* and *settings* to the longest so far, in place."""
    same = saved.get("position_encoding") == settings.position_encoding
    if not same or not _accepts_any_length(settings):
        return
    with open_config(settings):
        for name in _LENGTHS:
            now = option(settings, name)
            if now is not None:
                setattr(settings, name, max(now, saved.get(name) or now))
    for module in model.modules():
        if hasattr(module, "set_trained_length"):
            module.set_trained_length(settings.rotary_original_length)


def without_epochs_if_done(trainer: Any, extra_state: Mapping[str, Any], epochs: Any) -> Any:
    """The *epochs* of a resumed training; none, and a log line, if the training is complete.

    fairseq tests for completion only after an update, so each new start would add an update.
    """
    limits, updates = trainer.cfg.optimization, trainer.get_num_updates()
    if 0 < limits.max_update <= updates:
        limit = f"--max-update {limits.max_update}"
    elif 0 < limits.stop_time_hours < extra_state.get("previous_training_time", 0) / 3600:
        limit = f"--stop-time-hours {limits.stop_time_hours}"
    else:
        return epochs
    logger.info(
        "%s: already trained for %d updates (%s), so nothing changes; raise the limit to continue",
        *(trainer.cfg.checkpoint.save_dir, updates, limit),
    )
    # NaN <= --max-epoch is false, even if that flag is infinite
    return SimpleNamespace(next_epoch_idx=math.nan)


def _accepts_any_length(model: Options) -> bool:
    """True for the settings of a model without a table of positions."""
    return not any(encoding.bounded for encoding in all_encodings(model.position_encoding))


def _changed(flag: str, now: object, before: object, path: str, reset: str = "") -> UsageError:
    return UsageError(
        f"{flag} {now}: the run in {os.path.dirname(path) or '.'} was trained with {before}; give "
        f"another --save-dir, with --finetune-from-model {path} to start from its parameters{reset}"
    )
