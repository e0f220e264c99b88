"""Model folders: a model with everything that raw text needs to pass through it.

::

    MODEL/
        model.json       what it is, and how its text was prepared
        README.md        a card: data, flags, scores, limits
        checkpoint.pt    for fairseq, without the optimiser's state
        dict.*.txt       dictionaries
        codes            subwords: the merges of subword-nmt, or a model of SentencePiece; one for
                         both languages, or a second one for the target
        ctranslate2/     the exported model, if there is one

``fairseq-posenc pack`` writes one, and ``fairseq-posenc translate`` reads it.  This file imports
neither PyTorch nor fairseq.
"""

import json
import os
from typing import Any, Dict, NamedTuple, Optional

from fairseq_posenc.errors import UsageError
from fairseq_posenc.json_object import read_json_object

#: The version of the format, raised when older readers would misread it.
FORMAT = 1
SETTINGS, CARD, CHECKPOINT, EXPORT = "model.json", "README.md", "checkpoint.pt", "ctranslate2"
#: In an exported model, what translating needs to know of it.
EXPORT_SETTINGS = "fairseq_posenc.json"
TOKENIZERS = ("moses", "none")
SUBWORDS = ("subword-nmt", "sentencepiece", "none")


class Text(NamedTuple):
    """How the text of a model was prepared.

    Args:
        source_lang: language of the source, or of all text where there is one.
        target_lang: language of the target.
        tokenizer: one of :data:`TOKENIZERS`.
        dash_splits: whether Moses split hyphenated words.
        subwords: one of :data:`SUBWORDS`.
        subword_file: its file in the folder, or None.
        target_subword_file: that of the target, where it is not the same.
    """

    source_lang: Optional[str] = None
    target_lang: Optional[str] = None
    tokenizer: str = "none"
    dash_splits: bool = False
    subwords: str = "none"
    subword_file: Optional[str] = None
    target_subword_file: Optional[str] = None


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
    """

    path: str
    task: str
    text: Text = Text()
    search: Search = Search()

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
        text, search = Text(**entries["text"]), Search(**entries["search"])
        folder = ModelFolder(path, str(entries["task"]), text, search)
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


def _check_text(text: Text, shown: str) -> None:
    for name, known in (("tokenizer", TOKENIZERS), ("subwords", SUBWORDS)):
        value = getattr(text, name)
        if value not in known:
            raise UsageError(
                f"{shown}: {SETTINGS} has {name} {value!r}; it must be {' or '.join(known)}"
            )
    if (text.subwords == "none") != (text.subword_file is None):
        raise UsageError(f"{shown}: {SETTINGS} has subwords {text.subwords!r} without their file")


def _check_piece(folder: ModelFolder, name: str, what: str, shown: str) -> None:
    if not os.path.isfile(folder.file(name)):
        raise UsageError(f"{shown}: {name}, {what}, is missing; pack the model again")
