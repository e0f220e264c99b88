"""Training that goes on from a checkpoint: what must agree with it, and what it continues.

A model without a table of positions can be trained in stages of different lengths (RoFormer
Table 4: 512, 1536, 256, 128, 1536, 512).  Its length in training is the longest of its stages,
whichever stage was the last.
"""

import logging
import math
import os
from typing import Any, Callable, Mapping, Optional

from fairseq.file_io import PathManager
from fairseq.trainer import Trainer

from fairseq_posenc.basics.errors import UsageError, flag_of
from fairseq_posenc.checkpoints.changes import Changes
from fairseq_posenc.checkpoints.inherit import BY_TASK, HEADS, is_fine_tuning
from fairseq_posenc.checkpoints.reading import (
    Checkpoint,
    model_settings,
    read_checkpoint,
    reason_of,
)
from fairseq_posenc.checkpoints.settings import (
    architecture,
    is_ours,
    saved_settings,
    settings_by_role,
    trained_settings,
)
from fairseq_posenc.configuration.fields import plug_in_flags
from fairseq_posenc.configuration.resolve import open_config
from fairseq_posenc.encodings import all_encodings
from fairseq_posenc.flags.options import Layer, Options, option

logger = logging.getLogger(__name__)

# errors that fairseq raises where it does not expect the content of a checkpoint
_OF_CONTENT = (AssertionError, AttributeError, LookupError, TypeError, ValueError)

#: settings that only say how long the sequences of training were
_LENGTHS = ("rotary_original_length", "num_positions")

#: Flags that a run cannot change: the flag, its group in fairseq's configuration, its name there,
#: and the setting that drops what depends on the flag from the checkpoint, or ""; packs add theirs.
FIXED = [
    ("--task", "task", "_name", ""),
    ("--source-lang", "task", "source_lang", ""),
    ("--target-lang", "task", "target_lang", ""),
    ("--criterion", "criterion", "_name", "reset_optimizer"),
    ("--optimizer", "optimizer", "_name", "reset_optimizer"),
    ("--lr-scheduler", "lr_scheduler", "_name", "reset_lr_scheduler"),
]


def check_same_kind(path: str, changed: Changes, cfg: Options) -> None:
    """Refuse to resume a run with another task, languages, samples, loss, optimiser or schedule.

    fairseq continues with some of them, and stops with a traceback for others.

    Args:
        path: the checkpoint, in the run's own folder.
        changed: its settings that have other values now.
        cfg: the configuration of the training.
    """
    for flag, group, name, reset in FIXED:
        before, now = changed.get((group, name), (None, None))
        dropped = reset and option(cfg.checkpoint, reset)
        if None not in (before, now) and not dropped:
            instead = f", or {flag_of(reset)} to go on here" if reset else ""
            raise _changed(flag, now, before, path, instead)


def check_settings_of(
    path: str, checkpoint: Mapping[str, Any], cfg: Options, resumes: bool
) -> bool:
    """Compare the settings of an initial checkpoint with the settings of the model to train.

    Settings without parameters cannot be checked in any other way.

    Args:
        path: the file, for messages.
        checkpoint: its content.
        resumes: whether the run resumes in its own folder.

    Returns:
        True for a warm start: the settings differ, which is logged.

    Raises:
        UsageError: they differ, and the run resumes or fine-tunes; or the rotary scaling is for a
            different length.
    """
    if option(cfg.model, "position_encoding") is None:  # a model of fairseq's
        return False
    saved = saved_settings(checkpoint)
    if not is_ours(saved):
        return True
    own, trained = plug_in_flags(), trained_settings(checkpoint, cfg.model)
    free = {n: saved[n] for n in own if own[n].metadata["role"] == "free" and n in saved}
    now = {n: field.metadata["default"] for n, field in own.items() if n not in cfg.model}
    differences = {
        name: (value, now.get(name, option(cfg.model, name)))
        for name, value in {**trained, **free}.items()
        if value != now.get(name, option(cfg.model, name))
    }
    if _accepts_any_length(cfg.model):
        differences = {n: both for n, both in differences.items() if n not in _LENGTHS}
    accepted = set(HEADS)
    if not resumes:  # fine-tuning leaves out modules of pre-training, with their settings
        accepted |= {BY_TASK} | {name for name in differences if name not in cfg.model}
    refused = [name for name in differences if name in trained and name not in accepted]
    if refused and is_fine_tuning(cfg.task):
        listed = ", ".join(_difference(name, *differences[name]) for name in refused)
        raise UsageError(
            f"{path}: was trained with other settings ({listed}); use --arch posenc_masked_lm "
            "without such flags, or under hydra give those of the file"
        )
    if refused and resumes:
        before, now = differences[refused[0]]
        raise _changed(flag_of(refused[0]), now, before, path)
    for name, values in differences.items():
        logger.warning("warm start: %s", _difference(name, *values))
    _check_trained_length(path, cfg.model, saved)
    return bool(differences)


def explain_restoring(load_checkpoint: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``Trainer.load_checkpoint`` to say in one line why a training cannot start from a file.

    Its assertions, and what else it raises at a content that it does not expect, are no defects.
    """

    def wrapper(trainer: Trainer, path: str, *args: object, **kwargs: object) -> Any:
        try:
            return load_checkpoint(trainer, path, *args, **kwargs)
        except UsageError:
            raise
        except Exception as error:
            if str(error).startswith("Cannot load model parameters from"):
                checkpoint = read_checkpoint(PathManager.get_local_path(path), lazy=True)
                cause = error.__context__ or error
                raise _misfit(path, checkpoint, trainer.cfg.model, cause) from error
            if isinstance(error, _OF_CONTENT):
                raise UsageError(
                    f"{path}: the state of its training cannot be restored ({reason_of(error)}); "
                    f"start with --finetune-from-model {path} in a new --save-dir, or give "
                    "--reset-optimizer, --reset-lr-scheduler, --reset-meters and --reset-dataloader"
                ) from error
            raise

    return wrapper


def _misfit(path: str, checkpoint: Checkpoint, model: Options, cause: BaseException) -> UsageError:
    """The error that says what does not fit, which fairseq's does not.

    Args:
        model: the settings of the model to train.
    """
    if isinstance(cause, UsageError):
        return cause
    sizes = [
        f"{flag_of(name)} {value}"
        for name, value in settings_by_role(checkpoint, ("model",)).items()
        if type(value) is int and option(model, name, value) != value  # True and False are no sizes
    ]
    return UsageError(
        f"{path}: its parameters do not fit this model (first difference: "
        f"{first_mismatch(cause)}); it is of --arch {architecture(model_settings(checkpoint))}, "
        f"give its {' '.join(sizes) or 'flags and dictionaries'}"
    )


def first_mismatch(error: BaseException) -> str:
    """The first parameter that PyTorch names in an error of loading, and what is wrong with it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return repr(error)
    listed, comma, _ = lines[min(1, len(lines) - 1)].partition('", "')
    return listed[:300].rstrip(".") + ('"' if comma else "")


def keep_longest(model: Layer, settings: Options, saved: Mapping[str, Any]) -> None:
    """Continue with the longest length so far as the length in training, in place.

    Args:
        settings: its settings, which later checkpoints store.
        saved: the settings of the checkpoint that it continues from.
    """
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


class _NoEpochs:
    """Stands for the data of a training that is done; fairseq's loop over epochs then has none."""

    next_epoch_idx = math.nan  # NaN <= --max-epoch is false, even if that flag is infinite


def without_epochs_if_done(trainer: Any, extra_state: Mapping[str, Any], epochs: Any) -> Any:
    """The *epochs* of a training that goes on; none, as its log says, where its end was reached.

    fairseq checks for the end only after an update, so it would add an update at every new start.

    Args:
        trainer: fairseq's trainer, which has loaded the checkpoint.
        extra_state: what the checkpoint says of the training besides its parameters.
    """
    limit = _reached(trainer.cfg.optimization, trainer.get_num_updates(), extra_state)
    if limit is None:
        return epochs
    logger.info(
        "%s: already trained for %d updates (%s), so nothing is changed; raise that to go on",
        *(trainer.cfg.checkpoint.save_dir, trainer.get_num_updates(), limit),
    )
    return _NoEpochs()


def _reached(limits: Options, updates: int, extra_state: Mapping[str, Any]) -> Optional[str]:
    """The flag with which a training has ended, or None."""
    hours = extra_state.get("previous_training_time", 0) / 3600
    if 0 < limits.max_update <= updates:
        return f"--max-update {limits.max_update}"
    if 0 < limits.stop_time_hours < hours:
        return f"--stop-time-hours {limits.stop_time_hours}"
    return None


def _accepts_any_length(model: Options) -> bool:
    """True if the settings are of a model without a table of positions."""
    return not any(encoding.bounded for encoding in all_encodings(model.position_encoding))


def _changed(flag: str, now: object, before: object, path: str, reset: str = "") -> UsageError:
    return UsageError(
        f"{flag} {now}: the run in {os.path.dirname(path) or '.'} was trained with {before}; give "
        f"another --save-dir, and --finetune-from-model {path} to start from its parameters{reset}"
    )


def _difference(name: str, before: object, now: object) -> str:
    return f"{flag_of(name)} {before} -> {now}"


def _check_trained_length(path: str, model: Options, saved: Mapping[str, Any]) -> None:
    """Refuse frequencies scaled for another length than the checkpoint's."""
    trained, taken = saved.get("rotary_original_length"), model.rotary_original_length
    if model.rotary_scaling != "none" and trained is not None and trained != taken:
        raise UsageError(
            f"--rotary-scaling {model.rotary_scaling}: {path} was trained on {trained} tokens, and "
            f"its frequencies would be scaled as if on {taken}; give --rotary-original-length "
            f"{trained}"
        )
