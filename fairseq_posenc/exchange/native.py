"""The input of an export: a checkpoint of this plug-in or of fairseq, its settings and task."""

import dataclasses
import os
from argparse import Namespace
from enum import Enum
from types import MappingProxyType
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence

from fairseq.data import Dictionary
from fairseq.tasks import TASK_DATACLASS_REGISTRY
from torch import nn

from fairseq_posenc.basics.errors import UsageError, flag_of
from fairseq_posenc.checkpoints import loader
from fairseq_posenc.checkpoints.inherit import as_ours
from fairseq_posenc.checkpoints.loader import find_dictionary, read_dictionary
from fairseq_posenc.checkpoints.settings import encodings_by_side, is_ours, task_of, task_settings
from fairseq_posenc.configuration.fields import defaults_of
from fairseq_posenc.exchange.formats import Flag, Wanted
from fairseq_posenc.exchange.huggingface.splitters import Subwords
from fairseq_posenc.flags.options import SIDES, Options, option
from fairseq_posenc.flags.values import read_overrides
from fairseq_posenc.layers.heads import PRETRAINING
from fairseq_posenc.models import kinds
from fairseq_posenc.serving.model_folder import Search

VOCAB = Flag("vocab", "file with the vocabulary, if it is not next to the model", "FILE")
DATA = Flag("data", "folder of the binary data, if it has moved since training", "DIR")
#: The languages of a translation model.
LANGUAGES = (
    Flag("source_lang", "source language (default: from the checkpoint or the data)", "LANG"),
    Flag("target_lang", "target language (default: from the checkpoint or the data)", "LANG"),
)
MODEL_OVERRIDES = Flag(
    "model_overrides",
    "settings of the model to change, such as \"{'rotary_scaling': 'linear'}\"",
    "DICT",
    read=read_overrides,
)
#: The default search settings of fairseq-generate.
SEARCH = Search(beam=5, lenpen=1.0)
#: Endings of the names of buffers, which are not exported.
_BUFFERS = (".version", "._float_tensor")


class NativeCheckpoint(NamedTuple):
    """A model that an export can write, loaded from its file."""

    path: str  # the file
    settings: kinds.Settings  # flags of the model under their current names, with defaults
    parameters: kinds.Parameters  # in float32
    symbols: List[str]  # the symbols of the dictionary in order, ``<s>`` first
    dictionary: str  # the path of its dict.txt
    kind: kinds.Kind = kinds.MASKED  # the kind of the model
    task: Options = Namespace()  # the settings of the task that it was trained on
    data: Optional[str] = None  # the folder of its training data
    subwords: Optional[Subwords] = None  # how its text was prepared, if that is known
    notes: Sequence[str] = ()  # notes for the user of the export
    options: Mapping[str, Any] = MappingProxyType({})  # values of the export's flags
    search: Search = SEARCH  # search settings of a translation model
    loaded: Any = None  # the model and its task, as the loader returns them

    @property
    def dictionaries(self) -> Dict[str, Dictionary]:
        """The dictionary of each side; only translation models can have two different ones."""
        task = self.loaded.task
        return dict(zip(SIDES, (task.source_dictionary, task.target_dictionary)))

    def load(self, path: str, changes: Mapping[str, Any]) -> nn.Module:
        """The model in file *path*, with *changes* to its settings if it is not this checkpoint."""
        same = path == self.path
        loaded = self.loaded if same else _load(path, self.kind, changes, self.loaded.task)
        return loaded.model

    def heads(self, prefix: str) -> List[str]:
        """Names of the heads with parameters under *prefix*, such as :data:`TOKEN_HEADS`."""
        names = [name[len(prefix) :] for name in self.parameters if name.startswith(prefix)]
        return list(dict.fromkeys(name.split(".")[0] for name in names))


def load(path: str, dictionary: str, kind: kinds.Kind = kinds.MASKED) -> nn.Module:
    """Load a checkpoint as fairseq's commands do, including heads, in evaluation mode."""
    return _load(path, kind, {}, task_with(dictionary, kind)).model


def task_with(dictionary: str, kind: kinds.Kind) -> loader.BareTask:
    """A task for models of *kind*, with the dictionary in a dict.txt and without data."""
    cfg = TASK_DATACLASS_REGISTRY[kind.task](_name=kind.task)
    return loader.BareTask(cfg, read_dictionary(dictionary, kind.adds_mask))


def _load(
    path: str,
    kind: kinds.Kind,
    changes: Mapping[str, Any],
    task: Any = None,
    remedy: str = loader.REMEDY,
) -> loader.Loaded:
    """Load a model with all its heads and *changes* to its settings, as it is exported."""
    heads = {"load_checkpoint_heads": True} if kind is kinds.MASKED else {}
    without = {field.name: field.metadata["default"] for field in _not_exported(kind)}
    return loader.load(path, {**heads, **changes, **without}, task=task, remedy=remedy)


def _not_exported(kind: kinds.Kind) -> List["dataclasses.Field[Any]"]:
    """Settings that exported models do not have, as they change no output for one text."""
    fields = dataclasses.fields(kind.family.dataclass)
    return [field for field in fields if field.metadata.get("exported")]


def _native(
    loaded: loader.Loaded, kind: kinds.Kind, saved: kinds.Settings, dictionary: str, task: Options
) -> NativeCheckpoint:
    """Combine a loaded model, its settings in training (*saved*), its dict.txt and its *task*."""
    given = {  # fairseq's enumerations become plain values
        name: value.value if isinstance(value, Enum) else value
        for name, value in loaded.settings.items()
        if value is not None
    }
    state = loaded.model.state_dict()
    names = [n for n in state if not n.endswith(_BUFFERS) and not kinds.COPIES.search(n)]
    return NativeCheckpoint(
        loaded.path,
        {**defaults_of(kind.family.dataclass), **given},
        {name: state[name].float() for name in names},
        list(loaded.task.source_dictionary.symbols),
        dictionary,
        kind,
        task,
        option(task, "data"),
        notes=[
            f"trained with {flag_of(field.name)}: {field.metadata['exported']}"
            for field in _not_exported(kind)
            if saved.get(field.name) not in (None, field.metadata["default"])
        ],
        loaded=loaded,
    )


def read_native(path: str, dictionary: Optional[str]) -> NativeCheckpoint:
    """Load a masked language model, or a causal one of this plug-in, with its dictionary.

    Args:
        dictionary: the path of its dict.txt, or None to search its folder and its training data.

    Raises:
        UsageError: the checkpoint has a different kind of model, its parameters do not fit its
            settings, or the dictionary is missing or has a different size.
    """
    checkpoint, settings, name, kind = kinds.read_trained(path, lazy=True)
    saved = checkpoint["model"]
    ours = kind is kinds.MASKED or (kind is kinds.CAUSAL and is_ours(settings))
    if kind is None or not ours or kind.embedding not in saved:
        raise UsageError(
            f"{path}: is not a masked language model or a language model of this plug-in (its "
            f"architecture is {name}); give a checkpoint of --arch {kinds.MASKED.arch} or "
            f"{kinds.CAUSAL.arch}, or of one of their presets"
        )
    dictionary = dictionary or find_dictionary(path, checkpoint, "--vocab")
    task = task_with(dictionary, kind)
    rows, symbols = len(saved[kind.embedding]), len(task.source_dictionary)
    if symbols != rows:
        raise UsageError(
            f"{path}: has {rows} token embeddings, but {dictionary} has {symbols} symbols, "
            "including fairseq's special ones; give the correct dictionary with --vocab"
        )
    loaded = _load(path, kind, {}, task)  # refuses damaged parameters
    found = _native(loaded, kind, settings, dictionary, task_of(checkpoint))
    if kind is kinds.MASKED and not is_ours(settings):
        found = found._replace(settings=kind.complete(as_ours(settings)))
    notes = _pretraining_heads(saved, found.parameters)
    return found._replace(notes=[*found.notes, *notes])


def _pretraining_heads(saved: kinds.Parameters, parameters: kinds.Parameters) -> Sequence[str]:
    """Return notes on the pre-training heads in a file; remove heads that no format supports."""
    notes = []
    for module, flag in PRETRAINING.items():
        names = [name for name in saved if name.startswith(f"{module}.")]
        name = module.partition(kinds.CLASSIFICATION_HEADS)[2]
        if names and name:
            notes.append(
                f"the head {name}, which only {flag} needs, is left out; --head {name} exports it"
            )
        elif names:
            notes.append(f"{module}, which only {flag} needs, is left out")
        for parameter in () if name else names:
            parameters.pop(parameter, None)
    return notes


def read_source(
    wanted: Wanted, target: str, accepted: Sequence[kinds.Kind] = kinds.KINDS
) -> NativeCheckpoint:
    """Load a model of this plug-in or of fairseq, with its heads and the task in its file.

    Args:
        wanted: the request, with the path of a checkpoint file.
        target: the format, for messages.
        accepted: the kinds of models that can be written.

    Raises:
        UsageError: the checkpoint cannot be read, its kind is not in *accepted*, the format does
            not support the inputs of its task, or a folder of data is missing.
    """
    path, data = wanted.path, wanted.get("data")
    if data is not None and not os.path.isdir(data):
        raise UsageError(f"--data {data}: there is no such folder; give the folder with the data")
    _, settings, name, kind = kinds.read_trained(path, lazy=True)
    if kind is None or kind not in accepted:
        known = " or ".join(f"{each.arch} or {each.stock}" for each in accepted)
        raise UsageError(f"{path}: has --arch {name}; {target} takes {known}")
    overrides = dict(wanted.get("model_overrides") or {})
    flags = {flag.name: wanted.get(flag.name) for flag in (DATA, *LANGUAGES)}
    overrides.update({name: value for name, value in flags.items() if value is not None})
    remedy = "give --data the folder of its training data"
    if kind is kinds.TRANSLATION:
        remedy += ", and also give --source-lang and --target-lang if it has only dictionaries"
    loaded = _load(path, kind, overrides, remedy=remedy)
    task = task_settings(loaded.task)
    name = option(task, "_name") or option(task, "task")
    if name not in kind.tasks:
        raise UsageError(
            f"{path}: was trained with --task {name}, whose inputs {target} cannot reproduce; "
            f"give a checkpoint of --task {' or '.join(kind.tasks)}"
        )
    return _native(loaded, kind, settings, "", task)


def read_translation(wanted: Wanted, target: str) -> NativeCheckpoint:
    """Load a translation model; set only ``position_encoding`` if both sides have the same one."""
    found = read_source(wanted, target, [kinds.TRANSLATION])
    encodings = encodings_by_side(found.settings)
    same = encodings["encoder"] == encodings["decoder"]
    of_sides = {f"{side}_position_encoding": None if same else encodings[side] for side in SIDES}
    settings = {**found.settings, "position_encoding": encodings["encoder"], **of_sides}
    return found._replace(settings=settings)
