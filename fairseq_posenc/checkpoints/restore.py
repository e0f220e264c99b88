"""fairseq's operations on checkpoints, with further checks and one-line errors.

Functions here that take a function of fairseq return its replacement;
:mod:`fairseq_posenc.extensions` installs the replacements.
"""

import logging
import os
import types
from typing import Any, Callable, Dict, Iterable, Optional, Sequence

import torch
from fairseq import checkpoint_utils
from fairseq.file_io import PathManager
from fairseq.tasks import FairseqTask
from fairseq.trainer import Trainer
from omegaconf import OmegaConf

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.checkpoints.inherit import RESUMING, no_such_file, start_of
from fairseq_posenc.checkpoints.overrides import apply_overrides
from fairseq_posenc.checkpoints.reading import check_weights, read_checkpoint, reason_of
from fairseq_posenc.checkpoints.restricted import allow_fairseq_checkpoints
from fairseq_posenc.checkpoints.resuming import (
    changes,
    check_same_kind,
    check_settings_of,
    first_mismatch,
    keep_longest,
    log_changes,
    without_epochs_if_done,
)
from fairseq_posenc.checkpoints.run_record import check_dictionaries, check_direction, start_record
from fairseq_posenc.checkpoints.settings import needs_segments, refuse_unknown, saved_settings
from fairseq_posenc.checkpoints.warm_start import log_taken, position_difference
from fairseq_posenc.configuration.resolve import fill_missing, open_config
from fairseq_posenc.flags.options import Options, by_name, option

logger = logging.getLogger(__name__)


def restrict_unpickling() -> None:
    """Make fairseq read every checkpoint with the allow-list; idempotent."""
    allow_fairseq_checkpoints()
    if not isinstance(checkpoint_utils.torch, _Torch):
        checkpoint_utils.torch = _Torch("torch")


class _Torch(types.ModuleType):
    """A stand-in for the module ``torch`` in ``fairseq.checkpoint_utils``, with a safe ``load``.

    Unpickling can execute arbitrary code.  PyTorch 2.6 and later prevent this by default, but
    earlier versions do not, and fairseq main disables the protection (pull request 5611).  With
    this class, all versions read the same checkpoints and reject others with the same message.
    """

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    def load(self, file: Any, *_args: object, **_kwargs: object) -> Any:
        """Load an open file on the CPU, as fairseq does with every checkpoint."""
        return read_checkpoint(getattr(file, "name", file))


class DoesNotFit(UsageError):
    """The parameters do not fit the model that the settings and the dictionaries describe."""

    def __init__(self, path: str, difference: str) -> None:
        self.reason = "the parameters do not fit the model that the checkpoint's settings and the "
        self.reason += f"dictionaries of the data describe ({difference})"
        super().__init__(
            f"--path {path}: {self.reason}; give the data folder it was trained on, and no "
            "--model-overrides of sizes"
        )


class _Unbuildable(UsageError):
    """The settings of a checkpoint describe no model that can be built."""


def read_with_clear_errors(load_checkpoint_to_cpu: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``load_checkpoint_to_cpu``: check overrides, and say what is wrong with a bad file."""

    def wrapper(
        path: str, arg_overrides: Optional[Dict[str, Any]] = None, *args: object, **kwargs: object
    ) -> Any:
        if os.path.exists(path) and not os.path.isfile(path):
            read_checkpoint(path)  # refuses a folder, and a pipe, on which fairseq would block
        try:
            state = load_checkpoint_to_cpu(path, None, *args, **kwargs)
        except UsageError:
            raise
        except Exception as error:
            read_checkpoint(PathManager.get_local_path(path))  # raises a clearer error
            raise UsageError(
                f"{path}: not a checkpoint that fairseq can read ({reason_of(error)}); give a file "
                "that fairseq-train wrote"
            ) from error
        apply_overrides(state, arg_overrides, path)
        return state

    return wrapper


def check_ensemble(load_model_ensemble_and_task: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``load_model_ensemble_and_task`` to check the models and their settings."""

    def wrapper(filenames: Sequence[str], *args: object, **kwargs: object) -> Any:
        try:
            models, cfg, task = load_model_ensemble_and_task(filenames, *args, **kwargs)
        except OSError as error:
            before, _, missing = str(error).partition("Model file not found: ")
            if before == "" and missing:
                read_checkpoint(missing)
            raise
        except (_Unbuildable, AssertionError, IndexError) as error:
            for filename in filter(PathManager.isfile, filenames):
                refuse_unknown(
                    filename, read_checkpoint(PathManager.get_local_path(filename), True)
                )
            if isinstance(error, _Unbuildable):
                raise UsageError(f"{':'.join(filenames)}: {error.message}") from error
            raise
        except RuntimeError as error:
            if "Error(s) in loading state_dict" in str(error):
                raise DoesNotFit(":".join(filenames), first_mismatch(error)) from error
            raise
        for filename, model in zip(filenames, models):
            saved, weights = {}, model.state_dict()
            if PathManager.isfile(filename):  # the files of a sharded model have other names
                checkpoint = read_checkpoint(PathManager.get_local_path(filename), lazy=True)
                check_direction(filename, checkpoint, task)
                check_dictionaries(filename, checkpoint, task)
                saved = checkpoint["model"]
            check_weights(filename, weights, saved, weights)
        return models, cfg, task

    return wrapper


def check_restoring(load_checkpoint: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``load_checkpoint`` to check a run's initial checkpoint and start the run's record."""

    def wrapper(cfg: Options, trainer: Trainer, *args: object, **kwargs: object) -> Any:
        ours = option(trainer.cfg.model, "position_encoding") is not None
        path = _start(cfg, trainer.checkpoint_suffix, ours)
        if path is None:
            return load_checkpoint(cfg, trainer, *args, **kwargs)
        file, folder = PathManager.get_local_path(path), os.path.abspath(os.path.dirname(path))
        resumes = folder == os.path.abspath(cfg.save_dir) and not cfg.reset_optimizer
        checkpoint = read_checkpoint(file, lazy=True)
        # FSDP shards parameters, so the names differ
        parameters = {} if trainer.is_fsdp else trainer.get_model().state_dict()
        taken = {} if trainer.is_fsdp else checkpoint["model"]
        changed = changes(checkpoint, trainer.cfg) if resumes else {}
        if ours:
            check_same_kind(file, changed, trainer.cfg)
        warm = check_settings_of(file, checkpoint, trainer.cfg, resumes)
        goes_on = not cfg.reset_optimizer and path != cfg.finetune_from_model
        if goes_on and checkpoint.get("last_optimizer_state"):
            _check_optimizer(file, taken, parameters)
        log_changes(file, changed)
        start_record(trainer, path, checkpoint, goes_on)
        check_weights(file, checkpoint["model"], checkpoint["model"], parameters)
        extra_state, epochs = load_checkpoint(cfg, trainer, *args, **kwargs)
        if warm:
            log_taken(file, taken, parameters)
        if ours:
            keep_longest(trainer.get_model(), trainer.cfg.model, saved_settings(checkpoint))
        if goes_on:
            epochs = without_epochs_if_done(trainer, extra_state, epochs)
        return extra_state, epochs

    return wrapper


def _start(cfg: Options, suffix: Optional[str], ours: bool) -> Optional[str]:
    """The checkpoint that training starts from, or None.

    A file that a flag names must exist, except ``--restore-file`` with fairseq's own models: users
    of fairseq name an absent file in this flag in order not to resume from ``--save-dir``.
    """
    start = start_of(cfg, suffix or "")
    if start is None:
        return None
    flag, path = start
    if flag == RESUMING or PathManager.isfile(path):
        return path
    restores = flag == "--restore-file"
    if restores and not ours:
        logger.warning("--restore-file %s: no such file; training starts from scratch", path)
        return None
    instead = "drop the flag and give a new --save-dir" if restores else "drop the flag"
    raise UsageError(f"{no_such_file(flag, path)}; correct the path, or {instead}")


def _check_optimizer(path: str, keys: Iterable[str], ours: Iterable[str]) -> None:
    """Refuse an optimiser state of other parameters; the state identifies them only by index."""
    difference = position_difference(keys, ours)
    if difference is not None:
        raise UsageError(
            f"{path}: holds the optimizer state of different parameters (first difference: "
            f"{difference}); to change the encoding, start with --finetune-from-model {path} in a "
            "new --save-dir, or give --reset-optimizer"
        )


def complete_settings(build_model: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``fairseq.models.build_model``.

    Under ``fairseq-hydra-train`` that function passes a copy of the configuration to models with a
    dataclass, so derived settings (such as the length in training, which YaRN needs later) would be
    missing from the checkpoint; the wrapper copies them back.  A model built to load a checkpoint
    must have the checkpoint's position parameters; ``--model-overrides`` cannot change them.
    """

    def wrapper(cfg: Options, task: FairseqTask, from_checkpoint: bool = False) -> Any:
        if from_checkpoint and needs_segments(by_name(cfg)):
            logger.warning(
                "the checkpoint is older than --segments: all tokens are in segment 0, as in its "
                "training; if it was imported, import it again"
            )
            with open_config(cfg):
                cfg.segments = "single"
        try:
            model = build_model(cfg, task, from_checkpoint)
        except (UsageError, OSError):
            raise
        except Exception as error:  # settings can be wrong in any way
            if not from_checkpoint:
                raise
            raise _Unbuildable(
                f"no model can be built from its settings ({reason_of(error)}); give the "
                "checkpoint as fairseq-train wrote it"
            ) from error
        completed: Any = getattr(model, "completed_settings", cfg)
        if OmegaConf.is_config(cfg) and completed is not cfg:
            fill_missing(cfg, completed)
        if from_checkpoint:
            for module in model.modules():
                if hasattr(module, "strict_positions"):
                    module.strict_positions = True
                    module.strict_advice = "drop the --model-overrides that cause this"
        return model

    return wrapper
