"""Checks and error messages around restoring checkpoints.

The functions wrap three functions of ``fairseq.checkpoint_utils``: reading a file, building models
from files (generate, interactive, validate, eval-lm), and restoring a training run.
"""

import logging
import os
from typing import Any, Callable, Dict, Iterable, Optional, Sequence, Tuple

import torch
from fairseq.file_io import PathManager
from fairseq.trainer import Trainer
from torch import nn

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.checkpoints.inherit import check_settings_of
from fairseq_posenc.checkpoints.overrides import apply_overrides
from fairseq_posenc.checkpoints.reading import read_checkpoint
from fairseq_posenc.checkpoints.run_record import check_dictionaries, start_record
from fairseq_posenc.checkpoints.same_kind import check_same_kind
from fairseq_posenc.checkpoints.settings import saved_settings
from fairseq_posenc.checkpoints.stages import keep_longest
from fairseq_posenc.checkpoints.warm_start import log_taken, position_difference
from fairseq_posenc.flags.options import Options, option

logger = logging.getLogger(__name__)

_DEFAULT_RESTORE_FILE = "checkpoint_last.pt"


def reading(load_checkpoint_to_cpu: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(
        path: str, arg_overrides: Optional[Dict[str, Any]] = None, *args: object, **kwargs: object
    ) -> Any:
        if os.path.exists(path) and not os.path.isfile(path):
            read_checkpoint(path)  # a folder, or a pipe, on which opening would wait
        try:
            state = load_checkpoint_to_cpu(path, None, *args, **kwargs)
        except UsageError:
            raise
        except Exception as error:
            read_checkpoint(PathManager.get_local_path(path))  # fails with a clearer message
            if isinstance(error, KeyError):
                raise UsageError(
                    f"{path}: not a fairseq checkpoint, it has no entry {error}; give a file that "
                    "fairseq-train wrote"
                ) from error
            raise
        apply_overrides(state, arg_overrides, path)
        return state

    return wrapper


def building(load_model_ensemble_and_task: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(filenames: Sequence[str], *args: object, **kwargs: object) -> Any:
        try:
            models, cfg, task = load_model_ensemble_and_task(filenames, *args, **kwargs)
        except OSError as error:
            before, _, missing = str(error).partition("Model file not found: ")
            if before == "" and missing:
                read_checkpoint(missing)
            raise
        except RuntimeError as error:
            if "Error(s) in loading state_dict" in str(error):
                raise UsageError(
                    "--path {}: the parameters do not fit the model that its settings and the "
                    "dictionaries of the data describe ({}); give the data folder it was trained "
                    "on, and no --model-overrides of sizes".format(
                        ":".join(filenames), _first_mismatch(error)
                    )
                ) from error
            raise
        for filename, model in zip(filenames, models):
            _check_finite(filename, model)
        for filename in filter(PathManager.isfile, filenames):  # parts have other names
            path = PathManager.get_local_path(filename)
            check_dictionaries(filename, read_checkpoint(path, lazy=True), task)
        return models, cfg, task

    return wrapper


def _check_finite(path: str, model: nn.Module) -> None:
    for name, parameter in model.named_parameters():
        if not torch.isfinite(parameter).all():
            raise UsageError(
                f"{path}: {name} is not finite, the training diverged; give an earlier checkpoint"
            )


def restoring(load_checkpoint: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(cfg: Options, trainer: Trainer, *args: object, **kwargs: object) -> Any:
        ours = option(trainer.cfg.model, "position_encoding") is not None
        named, path, warm = _start(cfg, trainer.checkpoint_suffix, ours), None, False
        saved: Dict[str, Any] = {}
        if named is not None:
            path = PathManager.get_local_path(named)
            checkpoint, own = read_checkpoint(path, lazy=True), _is_own(named, cfg)
            if own and ours:
                check_same_kind(path, checkpoint, trainer.cfg)
            warm = check_settings_of(path, trainer.cfg, resumes=own)
            goes_on = not cfg.reset_optimizer and named != cfg.finetune_from_model
            if goes_on:
                _check_optimizer(path, trainer)
            start_record(trainer, named, checkpoint, goes_on)
            saved = saved_settings(checkpoint) if ours else {}
        try:
            restored = load_checkpoint(cfg, trainer, *args, **kwargs)
        except UsageError:
            raise
        except Exception as error:
            text = str(error)
            if text.startswith("--finetune-from-model"):
                raise UsageError(text.partition(": {")[0]) from error
            if text.startswith("Cannot load model parameters from checkpoint"):
                raise _misfit(text, error.__context__) from error
            raise
        if path is not None and warm:
            log_taken(path, *_names(path, trainer))
        if saved:
            keep_longest(trainer.get_model(), trainer.cfg.model, saved)
        return restored

    return wrapper


def _start(cfg: Options, suffix: Optional[str], ours: bool) -> Optional[str]:
    """The checkpoint that training starts from, or None.

    A file given by a flag must exist, except a ``--restore-file`` of fairseq's own models: an
    absent one is fairseq's idiom for not resuming in a folder.
    """
    own = os.path.join(cfg.save_dir, _DEFAULT_RESTORE_FILE)
    own_with_suffix = own.replace(".pt", (suffix or "") + ".pt")
    named = cfg.restore_file
    if named == _DEFAULT_RESTORE_FILE or os.path.abspath(named) == os.path.abspath(own):
        if PathManager.exists(own_with_suffix):
            return own_with_suffix
        if named != _DEFAULT_RESTORE_FILE or cfg.finetune_from_model is None:
            return None
        return _check_exists("--finetune-from-model", cfg.finetune_from_model, "drop it")
    path = named.replace(".pt", (suffix or "") + ".pt")
    if not ours and not PathManager.isfile(path):
        logger.warning("--restore-file %s: no such file; training starts anew, as in fairseq", path)
        return None
    return _check_exists("--restore-file", path, "to start anew, drop it and give a new --save-dir")


def _is_own(path: str, cfg: Options) -> bool:
    """True if the run resumes in its own folder without resetting the optimiser."""
    folder = os.path.abspath(os.path.dirname(path))
    return folder == os.path.abspath(cfg.save_dir) and not cfg.reset_optimizer


def _check_exists(flag: str, path: str, instead: str) -> str:
    if not PathManager.isfile(path):
        raise UsageError(
            f"{flag} {path}: no such file (the path is relative to the current folder, "
            f"{os.getcwd()}, and not to --save-dir); correct it, or {instead}"
        )
    return path


def _names(path: str, trainer: Trainer) -> Tuple[Iterable[str], Iterable[str]]:
    """Names of the parameters of a checkpoint and of the model; empty under FSDP, which shards."""
    if trainer.is_fsdp:
        return (), ()
    return read_checkpoint(path, lazy=True)["model"], trainer.get_model().state_dict()


def _check_optimizer(path: str, trainer: Trainer) -> None:
    """Refuse the optimiser's state of other parameters, which it identifies by index only."""
    difference = position_difference(*_names(path, trainer))
    if difference is None or not read_checkpoint(path, lazy=True).get("last_optimizer_state"):
        return
    raise UsageError(
        f"{path}: holds the optimizer's state of other parameters (first difference: "
        f"{difference}); to change the encoding, start with --finetune-from-model {path} in a "
        "new --save-dir, or give --reset-optimizer"
    )


def _misfit(text: str, cause: Optional[BaseException]) -> UsageError:
    """The error that names the parameter that does not fit, which fairseq's does not."""
    if isinstance(cause, UsageError):
        return cause
    return UsageError(
        "{} (first difference: {})".format(
            text.rstrip("."), _first_mismatch(cause) if cause is not None else "unknown"
        )
    )


def _first_mismatch(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[1] if len(lines) > 1 else lines[0])[:300].rstrip(".") if lines else repr(error)
