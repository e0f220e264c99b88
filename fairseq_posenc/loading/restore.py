"""Checks and error messages around restoring checkpoints.

The functions wrap three functions of ``fairseq.checkpoint_utils``: reading a file, building models
from files (generate, interactive, validate, eval-lm), and restoring a training run.
"""

import os
from typing import Any, Callable, Dict, Iterable, Optional, Sequence, Tuple

from fairseq.file_io import PathManager
from fairseq.trainer import Trainer

from fairseq_posenc.checkpoints.reading import read_checkpoint
from fairseq_posenc.errors import UsageError
from fairseq_posenc.loading.inherit import check_settings_of
from fairseq_posenc.loading.overrides import apply_overrides
from fairseq_posenc.loading.settings import saved_settings
from fairseq_posenc.loading.stages import keep_longest
from fairseq_posenc.loading.warm_start import log_taken, position_difference
from fairseq_posenc.options import Options, option

_DEFAULT_RESTORE_FILE = "checkpoint_last.pt"


def reading(load_checkpoint_to_cpu: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(
        path: str, arg_overrides: Optional[Dict[str, Any]] = None, *args: object, **kwargs: object
    ) -> Any:
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
            return load_model_ensemble_and_task(filenames, *args, **kwargs)
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

    return wrapper


def restoring(load_checkpoint: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(cfg: Options, trainer: Trainer, *args: object, **kwargs: object) -> Any:
        path, warm = _check_restore_file(cfg, trainer.checkpoint_suffix), False
        if path is not None:
            warm = check_settings_of(path, trainer.cfg, resumes=_is_own(path, cfg))
            if not (cfg.reset_optimizer or path == cfg.finetune_from_model):
                _check_optimizer(path, trainer)
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
        if path is not None and option(trainer.cfg.model, "position_encoding") is not None:
            saved = saved_settings(read_checkpoint(path, lazy=True))
            keep_longest(trainer.get_model(), trainer.cfg.model, saved)
        return restored

    return wrapper


def _check_restore_file(cfg: Options, suffix: Optional[str]) -> Optional[str]:
    """The local file that training starts from, or None; a file given by a flag must exist."""
    own = os.path.join(cfg.save_dir, _DEFAULT_RESTORE_FILE)
    own_with_suffix = own.replace(".pt", (suffix or "") + ".pt")
    named = cfg.restore_file
    if named == _DEFAULT_RESTORE_FILE or os.path.abspath(named) == os.path.abspath(own):
        if PathManager.exists(own_with_suffix):
            return PathManager.get_local_path(own_with_suffix)
        if named != _DEFAULT_RESTORE_FILE or cfg.finetune_from_model is None:
            return None
        return _check_exists("--finetune-from-model", cfg.finetune_from_model)
    return _check_exists("--restore-file", named.replace(".pt", (suffix or "") + ".pt"))


def _is_own(path: str, cfg: Options) -> bool:
    """True if the run resumes in its own folder without resetting the optimiser."""
    folder = os.path.abspath(os.path.dirname(path))
    return folder == os.path.abspath(cfg.save_dir) and not cfg.reset_optimizer


def _check_exists(flag: str, path: str) -> str:
    if not PathManager.isfile(path):
        raise UsageError(
            f"{flag} {path}: no such file (the path is relative to the current folder, "
            f"{os.getcwd()}, and not to --save-dir)"
        )
    return PathManager.get_local_path(path)


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
