"""What an export reads: the settings of a checkpoint, then the model with its task."""

import os
from typing import Any, Dict, Mapping, NamedTuple, Optional, Sequence, Tuple

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.checkpoints.loader import Loaded, load
from fairseq_posenc.checkpoints.settings import encodings_by_side, task_settings
from fairseq_posenc.configuration.fields import defaults_of
from fairseq_posenc.exchange.formats import Flag, Wanted
from fairseq_posenc.exchange.huggingface.splitters import Subwords
from fairseq_posenc.exchange.native import SEARCH, NativeCheckpoint, taken_alone
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
from fairseq_posenc.serving.model_folder import CHECKPOINT, Search, read_model_folder
from fairseq_posenc.serving.preparation import Text
from fairseq_posenc.serving.subwords import SUBWORD_FILES, SUBWORDS

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

    Returns:
        the model; its encoding is in ``position_encoding`` where both sides have the same.
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


ABOUT = Flag("about", "a sentence on the data, for the card", "TEXT")
#: The flags of an exporter that writes a card.
CARD_FLAGS = (ABOUT, Flag("scores", "texts with scores, for the card", "FILE", nargs="+"))
#: How text was prepared.
SUBWORD_FLAGS = (
    Flag("text_of", "the folder of a packed model that says how text was prepared", "FOLDER"),
    Flag("subwords", "without --text-of: how words were split (none)", choices=SUBWORDS),
    Flag("subword_file", "merges, model of SentencePiece, or tokenizer", "FILE"),
)


def prepared(wanted: Wanted) -> Tuple[Wanted, Optional[Subwords], Search]:
    """An export with the file of the checkpoint, how its text was prepared, and its search.

    Args:
        wanted: its path can be a model folder, which says all of it.

    Raises:
        UsageError: a folder does not say it, or flags contradict each other.
    """
    if os.path.isdir(wanted.path):
        folder = read_model_folder(wanted.path, "export")
        if folder.checkpoint is None:
            raise UsageError(f"{wanted.path}: has no {CHECKPOINT}; pack the checkpoint")
        said = {
            "data": wanted.path,
            "source_lang": folder.text.source_lang,
            "target_lang": folder.text.target_lang,
            **({} if wanted.get("subwords") else {"text_of": wanted.path}),
        }
        found = wanted._replace(path=folder.checkpoint, options={**said, **wanted.options})
        return found, subwords_of(found), folder.search
    return wanted, subwords_of(wanted), SEARCH


def subwords_of(wanted: Wanted) -> Optional[Subwords]:
    """The preparation of text that the flags of an export name; None if they name none."""
    kind, file, folder = map(wanted.get, ("subwords", "subword_file", "text_of"))
    if folder is not None:
        if kind is not None or file is not None:
            raise UsageError(f"--text-of {folder}: give it without --subwords and --subword-file")
        model = read_model_folder(folder, "--text-of")
        names = (model.text.subword_file, model.text.target_subword_file or model.text.subword_file)
        return Subwords(model.text, *(None if n is None else model.file(n) for n in names))
    if kind is None and file is None:
        return None
    if kind is None or (SUBWORD_FILES[kind] is None) != (file is None):
        raise UsageError(
            f"--subword-file {file}: belongs to --subwords subword-nmt, sentencepiece or "
            f"transformers, which need one; --subwords is {kind}"
        )
    return Subwords(Text(subwords=kind, subword_file=file), file, file)
