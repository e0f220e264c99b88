"""One line instead of a traceback where a checkpoint is missing, damaged or of another model."""

import os
from typing import Any, Callable, Dict, Iterable, Optional, Tuple

from fairseq import checkpoint_utils
from fairseq.file_io import PathManager
from omegaconf import OmegaConf, open_dict

from fairseq_posenc.checkpoints import read_checkpoint
from fairseq_posenc.compat.patching import wrap
from fairseq_posenc.encodings import encoding_flags
from fairseq_posenc.errors import UsageError, flag_of
from fairseq_posenc.modules.warm_start import log_taken, position_difference

_DEFAULT_RESTORE_FILE = "checkpoint_last.pt"
_ENCODING = "position_encoding"
# without parameters of their own, so that another value would only give other numbers
_TRAINED = (_ENCODING, "attention", "linear_rotary", "favor_kernel", "gau_normaliser")


def readable_checkpoint_errors() -> None:
    """Say what is wrong with a checkpoint in one line, in every command of fairseq.

    Three functions of ``fairseq.checkpoint_utils``: reading a file, building models from
    files (generate, interactive, validate, eval-lm), and restoring a training.  The last
    one starts from random weights when ``--restore-file`` does not exist (fairseq issue
    999); here only an absent checkpoint of the run itself is a fresh start.
    """
    wrap(checkpoint_utils, "load_checkpoint_to_cpu", _reading)
    wrap(checkpoint_utils, "load_model_ensemble_and_task", _building)
    wrap(checkpoint_utils, "load_checkpoint", _restoring)


def _reading(load_checkpoint_to_cpu: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(
        path: str, arg_overrides: Optional[Dict[str, Any]] = None, *args: Any, **kwargs: Any
    ) -> Any:
        overrides, trained = _without_trained(arg_overrides)
        try:
            state = load_checkpoint_to_cpu(path, overrides, *args, **kwargs)
        except UsageError:
            raise
        except Exception as error:
            read_checkpoint(PathManager.get_local_path(path))  # has the better words, if it fails
            if isinstance(error, KeyError):
                raise UsageError(
                    f"{path}: not a fairseq checkpoint, it has no entry {error}; give a file that "
                    "fairseq-train wrote"
                ) from error
            raise
        _check_trained(state, trained, path)
        _override_new_flags(state, overrides or {})
        return state

    return wrapper


def _without_trained(overrides: Optional[Dict[str, Any]]) -> Any:
    """Split overrides into those for fairseq, and those of what belongs to a trained model."""
    trained: Dict[str, Any] = {}
    if not overrides:
        return overrides, trained
    overrides = dict(overrides)
    if isinstance(overrides.get("model"), dict):
        overrides["model"] = dict(overrides["model"])
    for given in (overrides, overrides.get("model")):
        if isinstance(given, dict):
            trained.update({name: given.pop(name) for name in _TRAINED if name in given})
    return overrides, trained


def _check_trained(state: Dict[str, Any], asked: Dict[str, Any], path: str) -> None:
    """Refuse values of *asked* with which the checkpoint was not trained."""
    settings = state["cfg"].model if state.get("cfg") is not None else state["args"]
    for name, value in asked.items():
        trained = getattr(settings, name, None)
        if value != trained:
            was = repr(trained) if trained else "none of this plug-in"
            raise UsageError(
                f"--model-overrides {name}={value!r}: {path} was trained with {was}, and that "
                "belongs to the trained model; to change it, train on with "
                f"--finetune-from-model {path} {flag_of(name)} {value}"
            )


def _override_new_flags(state: Dict[str, Any], overrides: Dict[str, Any]) -> None:
    """Set flags of encodings that are younger than the checkpoint; fairseq skips these silently."""
    model: Any = state["cfg"].model if state.get("cfg") is not None else None
    if not OmegaConf.is_config(model) or _ENCODING not in model:
        return
    with open_dict(model):
        for name in {flag.name for flag in encoding_flags()}.intersection(overrides):
            model[name] = overrides[name]


def _building(load_model_ensemble_and_task: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(filenames: Any, *args: Any, **kwargs: Any) -> Any:
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
                    "--path {}: the parameters do not fit the model that its own settings and the "
                    "dictionaries of the data give ({}); give the data folder it was trained on, "
                    "and no --model-overrides of sizes".format(
                        ":".join(filenames), _first_mismatch(error)
                    )
                ) from error
            raise

    return wrapper


def _restoring(load_checkpoint: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(cfg: Any, trainer: Any, *args: Any, **kwargs: Any) -> Any:
        path, warm = _check_restore_file(cfg, trainer.checkpoint_suffix), False
        if path is not None:
            from fairseq_posenc.models.fine_tuning import check_encoding  # needs a repaired fairseq

            warm = check_encoding(path, trainer.cfg)
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
        return restored

    return wrapper


def _check_restore_file(cfg: Any, suffix: Optional[str]) -> Optional[str]:
    """The local file that a training starts from, or None; one that is named has to exist."""
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


def _check_exists(flag: str, path: str) -> str:
    if not PathManager.isfile(path):
        raise UsageError(
            f"{flag} {path}: no such file (the path is relative to the current folder, "
            f"{os.getcwd()}, and not to --save-dir)"
        )
    return PathManager.get_local_path(path)


def _names(path: str, trainer: Any) -> Tuple[Iterable[str], Iterable[str]]:
    """Names of the parameters of a checkpoint and of the model; none, where FSDP splits them."""
    if trainer.is_fsdp:
        return (), ()
    return read_checkpoint(path, lazy=True)["model"], trainer.get_model().state_dict()


def _check_optimizer(path: str, trainer: Any) -> None:
    """The optimiser knows parameters by their number alone; others would get their state."""
    difference = position_difference(*_names(path, trainer))
    if difference is None or not read_checkpoint(path, lazy=True).get("last_optimizer_state"):
        return
    raise UsageError(
        f"{path}: holds the optimizer's state of other parameters (first difference: "
        f"{difference}); to change the encoding, start with --finetune-from-model {path} in a "
        "new --save-dir, or give --reset-optimizer"
    )


def _misfit(text: str, cause: Optional[BaseException]) -> UsageError:
    """Say which parameter does not fit; fairseq only says that something does not."""
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
