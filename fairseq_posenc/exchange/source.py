"""What an export reads: the settings of a checkpoint, then the model with its task."""

import os
from typing import Callable, Optional, Sequence, Tuple

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.checkpoints.loader import load
from fairseq_posenc.checkpoints.settings import encodings_by_side, task_settings
from fairseq_posenc.configuration.fields import defaults_of
from fairseq_posenc.exchange.formats import Flag, Wanted
from fairseq_posenc.exchange.huggingface.splitters import Subwords
from fairseq_posenc.exchange.native import SEARCH, NativeCheckpoint, taken_alone
from fairseq_posenc.flags.options import SIDES, option
from fairseq_posenc.flags.values import read_overrides
from fairseq_posenc.models import kinds
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


def read_source(
    wanted: Wanted,
    target: str,
    accepted: Sequence[kinds.Kind] = kinds.KINDS,
    check: Callable[[str, kinds.Kind, kinds.Settings], None] = lambda path, kind, settings: None,
) -> NativeCheckpoint:
    """Load a model of this plug-in or of fairseq, with its heads and its task.

    Args:
        wanted: the request; its checkpoint is a file.
        target: the format, for messages.
        accepted: the kinds of models that can be written.
        check: refuses settings before anything is loaded.

    Raises:
        UsageError: it cannot be read, is of another kind, or was trained on a task with inputs of
            another kind, or a folder of data is missing.
    """
    path, data = wanted.path, wanted.get("data")
    if data is not None and not os.path.isdir(data):
        raise UsageError(f"--data {data}: there is no such folder")
    _, settings, name, kind = kinds.read_trained(path, lazy=True)
    if kind is None or kind not in accepted:
        known = " or ".join(f"{each.arch} or {each.stock}" for each in accepted)
        raise UsageError(f"{path}: is a model {name}; {target} can be given {known}")
    changes, notes = taken_alone(settings, kind)
    overrides = {**changes, **(wanted.get("model_overrides") or {})}
    for flag in (DATA, *LANGUAGES):
        if wanted.get(flag.name) is not None:
            overrides[flag.name] = wanted.get(flag.name)
    given = {name: value for name, value in settings.items() if value is not None}
    complete = {**defaults_of(kind.family.dataclass), **given, **overrides}
    check(path, kind, complete)
    remedy = "give by --data the folder that it was trained on"
    if kind is kinds.TRANSLATION:
        remedy += ", with --source-lang and --target-lang if it has nothing but the dictionaries"
    heads = {"load_checkpoint_heads": True} if kind is kinds.MASKED else {}
    loaded = load(path, overrides={**heads, **overrides}, remedy=remedy)
    task = task_settings(loaded.task)
    name = option(task, "_name") or option(task, "task")
    if name not in kind.tasks:
        raise UsageError(
            f"{path}: was trained with --task {name}, whose inputs {target} cannot reproduce; "
            f"it can those of {' or '.join(kind.tasks)}"
        )
    parameters = {
        name: value.float()
        for name, value in loaded.model.state_dict().items()
        if not name.endswith(_BUFFERS) and not kinds.COPIES.search(name)
    }
    symbols = list(loaded.task.source_dictionary.symbols)
    return NativeCheckpoint(
        *(path, complete, parameters, symbols, "", kind, task), notes=notes, loaded=loaded
    )


def read_translation(wanted: Wanted, target: str) -> NativeCheckpoint:
    """Load a translation model; ``position_encoding`` is that of both sides if they have one."""
    found = read_source(wanted, target, [kinds.TRANSLATION])
    encodings = encodings_by_side(found.settings)
    same = encodings["encoder"] == encodings["decoder"]
    of_sides = {f"{side}_position_encoding": None if same else encodings[side] for side in SIDES}
    settings = {**found.settings, "position_encoding": encodings["encoder"], **of_sides}
    return found._replace(settings=settings)


ABOUT = Flag("about", "a sentence on the data, for the card", "TEXT")
#: The flags of an exporter that writes a card.
CARD_FLAGS = (ABOUT, Flag("scores", "texts with scores, for the card", "FILE", nargs="+"))
#: How text was prepared.
SUBWORD_FLAGS = (
    Flag("text_of", "the folder of a packed model that says how text was prepared", "FOLDER"),
    Flag("subwords", "without --text-of: how words were split (none)", choices=SUBWORDS),
    Flag("subword_file", "merges, model of SentencePiece, or tokenizer", "FILE"),
)
#: The flags of an exporter of translation models.
TRANSLATION_FLAGS = (DATA, *LANGUAGES, *SUBWORD_FLAGS, *CARD_FLAGS)


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
