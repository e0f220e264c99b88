"""Model folders: a model with everything that raw text needs to pass through it.

::

    MODEL/
        model.json       what it is, and how its text was prepared
        README.md        a card: data, flags, scores, limits
        checkpoint.pt    for fairseq, without the optimiser's state
        dict.*.txt       dictionaries
        codes            subwords: the merges of subword-nmt, a model of SentencePiece, or the
                         files of a tokenizer of transformers
        ctranslate2/     the exported model, if there is one

``fairseq-posenc pack`` writes one; ``translate``, ``predict`` and ``from_pretrained`` read it.
This file imports neither PyTorch nor fairseq.
"""

import json
import os
from typing import (
    Any,
    Callable,
    Dict,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Tuple,
    TypeVar,
    get_type_hints,
)

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.lines import read_json_object
from fairseq_posenc.text.preparation import Text
from fairseq_posenc.text.subwords import SUBWORD_FILES, SUBWORDS
from fairseq_posenc.text.words import TOKENIZERS

#: The version of the format, raised when older readers would misread it.
FORMAT = 1
SETTINGS, CARD, CHECKPOINT, EXPORT = "model.json", "README.md", "checkpoint.pt", "ctranslate2"
#: In an exported model, what translating needs to know of it.
EXPORT_SETTINGS = "fairseq_posenc.json"


class Head(NamedTuple):
    """The classification head of a model.

    Args:
        name: its name in the model.
        labels: the classes by number; of a regression, names of the values.
        regression: whether it computes values.
        inputs: number of texts that it was trained on, or None if that is unknown.
        bounds: the values that 0 and 1 stand for in a regression.
    """

    name: str
    labels: List[str]
    regression: bool = False
    inputs: Optional[int] = None
    bounds: Tuple[float, float] = (0.0, 1.0)

    def value(self, output: float) -> float:
        """The value that an output of a regression stands for."""
        low, high = self.bounds
        return low + output * (high - low)


class Search(NamedTuple):
    """The beam search with which a model was scored.

    Args:
        beam: number of hypotheses.
        lenpen: exponent of the length by which scores are divided.
    """

    beam: int = 4
    lenpen: float = 0.6


class ModelFolder(NamedTuple):
    """A model folder.

    Args:
        path: the folder.
        task: the fairseq task of the model.
        text: how its text was prepared.
        search: defaults of the search.
        head: the head of a classifier, or None.
    """

    path: str
    task: str
    text: Text = Text()
    search: Search = Search()
    head: Optional[Head] = None

    def file(self, name: str) -> str:
        """The path of one of its files."""
        return os.path.join(self.path, name)

    @property
    def export(self) -> Optional[str]:
        """The folder of the exported model, or None."""
        path = self.file(EXPORT)
        return path if os.path.isdir(path) else None

    @property
    def checkpoint(self) -> Optional[str]:
        """The checkpoint, or None."""
        path = self.file(CHECKPOINT)
        return path if os.path.isfile(path) else None

    def settings(self) -> str:
        """The content of model.json."""
        entries: Dict[str, Any] = {"format": FORMAT, "task": self.task}
        entries["text"] = self.text._asdict()
        entries["search"] = self.search._asdict()
        if self.head is not None:
            entries["head"] = self.head._asdict()
        return json.dumps(entries, indent=2, ensure_ascii=False) + "\n"


def read_model_folder(path: str, flag: str = "--model") -> ModelFolder:
    """Read a model folder and check that it is complete.

    Args:
        path: the folder.
        flag: the flag that *path* was given by, for messages.

    Raises:
        UsageError: it is no model folder, or a piece is missing or damaged.
    """
    shown = f"{flag} {path}"
    if not os.path.isdir(path):
        raise UsageError(f"{shown}: is no folder; give one that `fairseq-posenc pack` wrote")
    entries = read_settings(os.path.join(path, SETTINGS), shown)
    if entries.get("format") != FORMAT:
        raise UsageError(
            f"{shown}: {SETTINGS} has format {entries.get('format')}, and this version reads "
            f"{FORMAT}; install the version that wrote it"
        )
    try:
        text, search = _made(Text, entries["text"]), _made(Search, entries["search"])
        head = _made(Head, entries["head"]) if entries.get("head") else None
        folder = ModelFolder(path, str(entries["task"]), text, search, head)
    except (KeyError, TypeError) as error:
        raise UsageError(
            f"{shown}: {SETTINGS} is damaged ({error}); pack the model again"
        ) from error
    _check_text(text, shown)
    for name in (text.subword_file, text.target_subword_file):
        if name is not None:
            _check_piece(folder, name, "the subwords", shown)
    if folder.export is not None:
        for name in ("model.bin", EXPORT_SETTINGS):
            _check_piece(folder, os.path.join(EXPORT, name), "the exported model", shown)
    elif folder.checkpoint is None:
        raise UsageError(f"{shown}: has neither {EXPORT} nor {CHECKPOINT}; pack the model again")
    return folder


def read_settings(path: str, shown: str) -> Dict[str, Any]:
    """Read a JSON object.

    Args:
        path: its file.
        shown: the flag and the folder, for messages.

    Raises:
        UsageError: it is missing or damaged.
    """
    advice = "give a folder that `fairseq-posenc pack` wrote"
    return read_json_object(path, f"{shown}: its {os.path.basename(path)}", advice)


_Entries = TypeVar("_Entries")
_TYPES: Dict[Any, Any] = {  # the types of values in JSON
    str: str,
    bool: bool,
    int: int,
    float: (int, float),
    Optional[str]: (str, type(None)),
    Optional[int]: (int, type(None)),
    List[str]: list,
    Tuple[float, float]: (list, tuple),
}


def _made(kind: Callable[..., _Entries], entries: Mapping[str, Any]) -> _Entries:
    """A part of the settings; TypeError if it has other entries, or values of another type."""
    hints = get_type_hints(kind)
    for name, value in entries.items():
        if name in hints and not isinstance(value, _TYPES[hints[name]]):
            raise TypeError(f"{name}: {value!r}")
    return kind(**entries)


def _check_text(text: Text, shown: str) -> None:
    for file in filter(None, (text.subword_file, text.target_subword_file)):
        if os.path.basename(file) != file or file in (os.curdir, os.pardir):
            raise UsageError(f"{shown}: {SETTINGS}: {file}: is no file of the folder itself")
    for name, known in (("tokenizer", TOKENIZERS), ("subwords", SUBWORDS)):
        value = getattr(text, name)
        if value not in known:
            raise UsageError(
                f"{shown}: {SETTINGS} has {name} {value!r}; it must be {' or '.join(known)}"
            )
    if (SUBWORD_FILES[text.subwords] is None) != (text.subword_file is None):
        raise UsageError(f"{shown}: {SETTINGS} has subwords {text.subwords!r} without their file")


def _check_piece(folder: ModelFolder, name: str, what: str, shown: str) -> None:
    if not os.path.exists(folder.file(name)):
        raise UsageError(f"{shown}: {name}, {what}, is missing; pack the model again")


#: Content of a model folder without a classification head, by task.
_WHAT = {
    "translation": "a translation model",
    "language_modeling": "a language model",
    "language_modeling_with_memory": "a language model",
    "masked_lm_pairs": "a masked language model",
    "masked_lm": "a masked language model without a classification head, or with several",
}


def refuse_without_head(folder: ModelFolder, shown: str) -> Head:
    """The head of a classifier's folder.

    Args:
        folder: the model folder.
        shown: the folder in messages.

    Raises:
        UsageError: the model is no classifier.
    """
    if folder.head is None:
        what = _WHAT.get(folder.task, f"a model of --task {folder.task}")
        raise UsageError(
            f"{shown}: holds {what}; predict needs a classifier, fine-tuned with "
            "--task sentence_prediction"
        )
    return folder.head
