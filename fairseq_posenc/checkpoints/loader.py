"""Loading checkpoints for use: models in evaluation mode, with their task and dictionaries.

fairseq's own functions load the files, but with the restricted reader and the checks of
:mod:`~fairseq_posenc.checkpoints.restore`.
"""

import contextlib
import os
from argparse import Namespace
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Union

import torch
from fairseq import checkpoint_utils, models, utils
from fairseq.data import Dictionary, data_utils

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.checkpoints.reading import (
    Checkpoint,
    check_weights,
    model_settings,
    settings_in,
)
from fairseq_posenc.checkpoints.restore import DoesNotFit
from fairseq_posenc.flags.options import by_name


def find_dictionary(path: str, checkpoint: Mapping[str, Any], flag: str) -> str:
    """The path of the source dictionary, beside the checkpoint or in its training data."""
    task = settings_in(checkpoint, "task")
    data = (task.get("data") or "").split(os.pathsep)[0]
    roots = [os.path.dirname(path) or ".", *([data] if data else [])]
    folders = [folder for root in roots for folder in (root, os.path.join(root, "input0"))]
    source = task.get("source_lang")
    if source is None and os.path.isdir(data):  # fairseq-train infers it but does not save it
        source = data_utils.infer_language_pair(data)[0]
    names = ([f"dict.{source}.txt"] if source else []) + ["dict.txt"]
    tried = [os.path.join(folder, name) for folder in folders for name in names]
    for candidate in tried:
        if os.path.isfile(candidate):
            return candidate
    raise UsageError(
        f"{path}: found no dictionary (tried {', '.join(tried)}); give the dictionary with {flag}"
    )


def read_dictionary(path: str, adds_mask: bool = True) -> Dictionary:
    """Read a dict.txt as fairseq's tasks do; *adds_mask* appends ``<mask>`` if it is absent."""
    try:
        dictionary = Dictionary.load(path)
    except Exception as error:  # fairseq raises Exception itself for a file that is not UTF-8
        reason = str(error).split("\n")[0]
        raise UsageError(f"{path}: cannot be read as a fairseq dictionary ({reason})") from error
    if adds_mask:
        dictionary.add_symbol("<mask>")
    return dictionary


class Loaded(NamedTuple):
    """The model of a checkpoint, with its task."""

    path: str  # the file, for messages
    model: Any  # in evaluation mode
    task: Any  # with the dictionaries
    saved: Any  # the settings of the model as fairseq read them
    device: str = "cpu"  # the device of the model

    @property
    def settings(self) -> Dict[str, Any]:
        """The settings of the model by name; for models of this plug-in, with all defaults."""
        return by_name(getattr(self.model, "completed_settings", self.saved))

    def move(self, sample: Any) -> Any:
        """The tensors of *sample* on the device of the model."""
        return utils.apply_to_sample(lambda tensor: tensor.to(self.device), sample)


class BareTask:
    """A task with dictionaries but without data, which is enough to build a model."""

    def __init__(self, cfg: Any, source: Dictionary, target: Optional[Dictionary] = None) -> None:
        self.cfg = cfg
        self.source_dictionary = self.dictionary = source
        self.target_dictionary = source if target is None else target

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> Any:
        """Build a model as fairseq's tasks do."""
        return models.build_model(cfg, self, from_checkpoint)

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Ignore the state of the task that wrote the checkpoint."""


def rebuild(path: str, checkpoint: Checkpoint, task: BareTask) -> Any:
    """Build the model of *checkpoint*, in evaluation mode; *task* has the dictionaries."""
    settings = Namespace(**model_settings(checkpoint))
    model = task.build_model(settings, from_checkpoint=True)
    model.load_state_dict(checkpoint["model"], model_cfg=settings)
    weights = model.state_dict()
    check_weights(path, weights, checkpoint["model"], weights)
    return model.eval()


#: Advice if data or settings do not fit a checkpoint.
REMEDY = "give the data folder that it was trained on"


def named_labels(path: str, classes: int) -> List[str]:
    """The first *classes* labels of a dictionary file, [] if it is absent; refuses fewer labels."""
    if not os.path.isfile(path):
        return []
    dictionary = read_dictionary(path, adds_mask=False)
    labels: List[str] = dictionary.symbols[dictionary.nspecial :][:classes]
    if len(labels) < classes:
        raise UsageError(
            f"{path}: has {len(labels)} labels, but the model has {classes} classes; {REMEDY}"
        )
    return labels


@contextlib.contextmanager
def in_one_line(path: str, remedy: str) -> Iterator[None]:
    """If fairseq cannot load a checkpoint, raise an error with its *path* and a *remedy*."""
    try:
        yield
    except DoesNotFit as error:
        raise UsageError(f"{path}: {error.reason}; {remedy}") from error
    except UsageError:
        raise
    except Exception as error:  # the type of the error depends on the task
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        reason = f"there is no {reason}" if isinstance(error, KeyError) else reason
        raise UsageError(f"{path}: cannot be loaded with its data ({reason}); {remedy}") from error


def load(
    path: str,
    overrides: Optional[Mapping[str, Any]] = None,
    device: Union[str, torch.device] = "cpu",
    task: Any = None,
    remedy: str = REMEDY,
) -> Loaded:
    """Load a checkpoint, with *overrides* of its settings, such as ``data``.

    *task* replaces the task that the file describes; *remedy* says what to do if data
    or settings do not fit.
    """
    device = checked_device(device)
    with in_one_line(path, remedy):
        (model,), cfg, task = checkpoint_utils.load_model_ensemble_and_task(
            [path], arg_overrides=dict(overrides or {}), task=task
        )
    return Loaded(path, model.eval().to(device), task, cfg.model, device)


def checked_device(device: Union[str, torch.device]) -> str:
    """Check that a model can compute on *device*, and return the device's name."""
    try:
        name = str(torch.device(device))
        torch.zeros(1, device=device).item()  # fails on a device without memory, such as "meta"
    except (AssertionError, NotImplementedError, RuntimeError, TypeError) as error:
        reason = str(error).split("\n")[0].split(" See ")[0]
        raise UsageError(f"device {device}: cannot be used here ({reason}); cpu works") from error
    return name
