"""What an export reads: the settings of a checkpoint, then the model with its task."""

import os
from typing import Any, Dict, Mapping, NamedTuple, Optional, Sequence

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.checkpoints.loader import Loaded, load
from fairseq_posenc.checkpoints.settings import encodings_by_side, task_settings
from fairseq_posenc.configuration.fields import defaults_of
from fairseq_posenc.exchange.formats import Flag, Wanted
from fairseq_posenc.exchange.native import NativeCheckpoint, taken_alone
from fairseq_posenc.flags.options import SIDES, option
from fairseq_posenc.flags.values import read_overrides
from fairseq_posenc.models.kinds import (
    COPIES,
    KINDS,
    MASKED,
    TRANSLATION,
    Kind,
    Settings,
    read_trained,
)

DATA = Flag("data", "the binary data, if it is no longer where training had it", "DIR")
#: The languages of a translation model.
LANGUAGES = (
    Flag("source_lang", "default: as in the checkpoint or the data", "LANG"),
    Flag("target_lang", "default: as in the checkpoint or the data", "LANG"),
)
MODEL_OVERRIDES = Flag(
    "model_overrides",
    "settings to change, such as \"{'rotary_scaling': 'linear'}\"",
    "DICT",
    read=read_overrides,
)
#: Ends of the names of buffers.
_BUFFERS = (".version", "._float_tensor")


class Source(NamedTuple):
    """A checkpoint of this plug-in or of fairseq, before it is loaded."""

    path: str  # the file
    kind: Kind  # what it is
    settings: Settings  # flags of the model, completed by defaults, with the overrides
    overrides: Dict[str, Any]  # settings to change when it is loaded
    notes: Sequence[str] = ()  # what the user should know


def source_of(wanted: Wanted, target: str, kinds: Sequence[Kind] = KINDS) -> Source:
    """Read the settings of the checkpoint that *wanted* names.

    Args:
        target: what is written, for messages.
        kinds: the kinds of models that can be written.

    Raises:
        UsageError: it cannot be read, is of another kind, or a folder of data is missing.
    """
    data = wanted.get("data")
    if data is not None and not os.path.isdir(data):
        raise UsageError(f"--data {data}: there is no such folder")
    overrides = dict(wanted.get("model_overrides") or {})
    for flag in (DATA, *LANGUAGES):
        if wanted.get(flag.name) is not None:
            overrides[flag.name] = wanted.get(flag.name)
    _, settings, name, kind = read_trained(wanted.path, lazy=True)
    if kind is None or kind not in kinds:
        known = " or ".join(f"{kind.arch} or {kind.stock}" for kind in kinds)
        raise UsageError(f"{wanted.path}: is a model {name}; {target} can be given {known}")
    changes, notes = taken_alone(settings, kind)
    overrides = {**changes, **overrides}
    given = {name: value for name, value in settings.items() if value is not None}
    complete = {**defaults_of(kind.family.dataclass), **given, **overrides}
    return Source(wanted.path, kind, complete, overrides, notes)


def load_source(source: Source, target: str) -> Loaded:
    """Load the model, with its heads and its task.

    Args:
        target: what is written, for messages.

    Raises:
        UsageError: it cannot be loaded, or was trained on a task with inputs of another kind.
    """
    path, kind = source.path, source.kind
    heads: Mapping[str, Optional[bool]] = {"load_checkpoint_heads": True} if kind is MASKED else {}
    remedy = "give by --data the folder that it was trained on"
    if kind is TRANSLATION:
        remedy += ", with --source-lang and --target-lang if it has nothing but the dictionaries"
    loaded = load(path, overrides={**heads, **source.overrides}, remedy=remedy)
    settings = task_settings(loaded.task)
    name = option(settings, "_name") or option(settings, "task")
    if name not in kind.tasks:
        raise UsageError(
            f"{path}: was trained with --task {name}, whose inputs {target} cannot reproduce; "
            f"it can those of {' or '.join(kind.tasks)}"
        )
    return loaded


def read_translation(wanted: Wanted, target: str) -> NativeCheckpoint:
    """Load a translation model of this plug-in or of fairseq.

    Args:
        wanted: the request; its checkpoint is a file.
        target: what is written, for messages.

    Returns:
        the model; its encoding is in ``position_encoding`` where both sides have the same.

    Raises:
        UsageError: as :func:`source_of` and :func:`load_source`.
    """
    source = source_of(wanted, target, [TRANSLATION])
    loaded = load_source(source, target)
    encodings = encodings_by_side(source.settings)
    same = encodings["encoder"] == encodings["decoder"]
    of_sides = {f"{side}_position_encoding": None if same else encodings[side] for side in SIDES}
    settings = {**source.settings, "position_encoding": encodings["encoder"], **of_sides}
    parameters = {
        name: value.float()
        for name, value in loaded.model.state_dict().items()
        if not name.endswith(_BUFFERS) and not COPIES.search(name)
    }
    task: Any = loaded.task
    symbols = list(task.source_dictionary.symbols)
    return NativeCheckpoint(
        *(source.path, settings, parameters, symbols, "", TRANSLATION),
        task=task_settings(task),
        notes=source.notes,
        loaded=loaded,
    )
