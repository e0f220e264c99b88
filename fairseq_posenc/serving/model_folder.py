"""Model folders: a model with everything that it needs to process raw text.

::

    MODEL/
        model.json       the task, the text preparation, and digests of the other files
        README.md        a card: data, flags, scores, limits
        checkpoint.pt    the checkpoint for fairseq, without the optimiser's state
        dict.*.txt       dictionaries
        codes            the merges of subword-nmt; other kinds of subwords have another file:
                         sentencepiece.model, words.txt, or the folder tokenizer/
        ctranslate2/     the exported model, if there is one

``fairseq-posenc pack`` writes them; ``translate``, ``predict`` and ``from_pretrained`` read them.
This file imports neither PyTorch nor fairseq.
"""

import functools
import math
import os
import sys
from pathlib import Path
from types import MappingProxyType
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Tuple, get_type_hints

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.files import digest_of_file
from fairseq_posenc.basics.lines import json_text, read_json_object, read_lines
from fairseq_posenc.serving.preparation import TOKENIZERS, Text
from fairseq_posenc.serving.subwords import SUBWORDS, WITH_FILE

#: The version of the format; it increases if older readers would misread a folder.
FORMAT = 1
SETTINGS, CARD, CHECKPOINT, EXPORT = "model.json", "README.md", "checkpoint.pt", "ctranslate2"
#: The file of an exported model with the settings that translation needs.
EXPORT_SETTINGS = "fairseq_posenc.json"
ADVICE = "give a folder that `fairseq-posenc pack` wrote"


class Head(NamedTuple):
    """The classification head of a model."""

    name: str  # the name in the model
    labels: List[str]  # the classes in order; for a regression, names of the values
    regression: bool = False  # whether its outputs are values, not class logits
    # number of texts per example in training, or None if unknown
    inputs: Optional[int] = None
    bounds: Tuple[float, float] = (0.0, 1.0)  # the values that 0 and 1 stand for in a regression

    def value(self, output: float) -> float:
        """The value that an output of a regression stands for."""
        low, high = self.bounds
        return low + output * (high - low)


#: Bounds of the flag for :attr:`Search.lenpen`.
LENPEN = {"at_least": -100, "below": 100}


class Search(NamedTuple):
    """The beam search with which a model was scored."""

    beam: int = 4  # number of hypotheses
    lenpen: float = 0.6  # exponent of the length by which scores are divided


class ModelFolder(NamedTuple):
    """A model folder."""

    path: str  # the folder
    task: str  # the fairseq task of the model
    text: Text = Text()  # how its text was prepared
    search: Search = Search()  # defaults of the search
    head: Optional[Head] = None  # the head of a classifier, or None
    # the SHA-256 of each file except model.json and the card, keyed by file name; folders of
    # version 0.1 have none
    digests: Mapping[str, str] = MappingProxyType({})

    def file(self, name: str) -> str:
        """The path of the file or sub-folder *name*."""
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

    @property
    def overrides(self) -> Dict[str, Any]:
        """Settings that replace the checkpoint's: the data folder, languages, loading of heads."""
        text = self.text
        named = {"source_lang": text.source_lang, "target_lang": text.target_lang}
        languages = {name: lang for name, lang in named.items() if lang is not None}
        heads = {} if self.head is None else {"load_checkpoint_heads": True}
        return {"data": self.path, **languages, **heads}

    @property
    def dictionaries(self) -> List[str]:
        """The names of the dictionaries without which the checkpoint cannot be loaded."""
        if self.task == "translation":
            return [f"dict.{self.text.source_lang}.txt", f"dict.{self.text.target_lang}.txt"]
        if self.task not in ("sentence_prediction", "sentence_ranking"):
            return ["dict.txt"]
        # the data of these tasks have one folder, with a dictionary, for each input
        has_labels = self.head is not None and not self.head.regression
        names = ["input0", "label"] if has_labels else ["input0"]
        return [os.path.join(name, "dict.txt") for name in names]

    def checked(self) -> str:
        """The path of the checkpoint, after a comparison with its digest.

        Raises:
            UsageError: the checkpoint is missing, or has changed since it was packed.
        """
        if self.checkpoint is None:
            raise UsageError(
                f"{self.path}: has only a model for CTranslate2, which only `translate` can use; "
                "pack the checkpoint again"
            )
        self.check(self.path, CHECKPOINT)
        return self.checkpoint

    def with_digests(self) -> "ModelFolder":
        """This folder, with the digests of the files that it has now."""
        every = (file for file in Path(self.path).rglob("*") if file.is_file())
        files = {file.relative_to(self.path).as_posix(): file for file in every}
        names = sorted(files.keys() - {SETTINGS, CARD})
        return self._replace(digests={name: digest_of_file(files[name]) for name in names})

    def check(self, shown: str, *parts: str) -> None:
        """Refuse files that are missing, or have changed since they were packed.

        Args:
            shown: how messages name the folder.
            parts: the names of the files or folders to compare; by default all but the checkpoint
                and the export, which are compared when they are read.
        """
        for name, digest in self.digests.items():
            part, path = name.split("/")[0], self.file(name)
            if part not in parts if parts else part in (CHECKPOINT, EXPORT):
                continue
            if not os.path.isfile(path):
                raise UsageError(f"{shown}: {name} is missing; copy or pack the model again")
            if digest_of_file(path) != digest:
                raise UsageError(
                    f"{shown}: {name} has changed since it was packed (its digest differs); copy "
                    "or pack the model again"
                )

    def settings(self) -> str:
        """The content of model.json."""
        entries: Dict[str, Any] = {"format": FORMAT, "task": self.task}
        entries["text"] = self.text._asdict()
        entries["search"] = self.search._asdict()
        if self.head is not None:
            entries["head"] = self.head._asdict()
        entries["digests"] = dict(self.digests)
        return json_text(entries)


def read_model_folder(path: str, flag: str = "--model") -> ModelFolder:
    """Read a model folder and check that it is complete.

    Raises:
        UsageError: *path* is no model folder, or a part of it is missing or damaged.
    """
    shown = f"{flag} {path}"
    if not os.path.isdir(path):
        raise UsageError(f"{shown}: is no folder; {ADVICE}")
    description = os.path.join(path, SETTINGS)
    if os.path.exists(description) and not os.path.isfile(description):
        raise UsageError(f"{shown}: its {SETTINGS} is no file; {ADVICE}")
    entries = read_json_object(description, f"{shown}: its {SETTINGS}", ADVICE)
    if entries.get("format") != FORMAT:
        raise UsageError(
            f"{shown}: {SETTINGS} has format {entries.get('format')}, but this version reads "
            f"{FORMAT}; install the version that wrote it"
        )
    try:
        text, search = _made(Text, entries["text"]), _made(Search, entries["search"])
        head = None if entries.get("head") is None else _made(Head, entries["head"])
        digests = entries.get("digests", {})
        for name, value, kind in (("task", entries["task"], str), ("digests", digests, dict)):
            if not isinstance(value, kind):
                raise TypeError(f"{name}: {value!r}")
        folder = ModelFolder(path, entries["task"], text, search, head, digests)
        if search.beam < 1:
            raise TypeError(f"beam: {search.beam}")
    except (KeyError, TypeError) as error:
        raise UsageError(
            f"{shown}: {SETTINGS} is damaged ({error}); pack the model again"
        ) from error
    _check_text(text, shown)
    _check_pieces(folder, shown)
    folder.check(shown)
    _check_labels(folder, shown)
    if entries.get("context") is not None:  # an entry of version 0.2
        _say_once(
            f"{path}: was packed with --context, but now each sentence is translated alone; "
            "examples/document_translation translates documents"
        )
    return folder


@functools.lru_cache(maxsize=None)
def _say_once(text: str) -> None:
    print(text, file=sys.stderr)


def _check_pieces(folder: ModelFolder, shown: str) -> None:
    """Refuse a folder that lacks a needed file; folders of version 0.1 have no list of files."""
    needed = [folder.text.subword_file, folder.text.target_subword_file]
    if folder.export is not None:
        needed += [os.path.join(EXPORT, name) for name in ("model.bin", EXPORT_SETTINGS)]
    if folder.checkpoint is not None:
        needed += folder.dictionaries
    elif folder.export is None:
        raise UsageError(f"{shown}: has neither {EXPORT} nor {CHECKPOINT}; pack the model again")
    for name in filter(None, needed):
        if not (os.path.isfile(folder.file(name)) or os.path.isdir(folder.file(name))):
            raise UsageError(f"{shown}: {name} is missing; copy or pack the model again")


def _check_labels(folder: ModelFolder, shown: str) -> None:
    """Refuse labels that differ, in name or order, from the first entries of label/dict.txt."""
    path = folder.file(os.path.join("label", "dict.txt"))
    if folder.head is None or folder.head.regression or not os.path.isfile(path):
        return
    labels = folder.head.labels
    known = [line.rpartition(" ")[0] for line in read_lines(path)][: len(labels)]
    if known != labels:
        raise UsageError(
            f"{shown}: {SETTINGS} has the labels {', '.join(map(str, labels))}, but label/dict.txt "
            f"has {', '.join(known)}; pack the model again"
        )


def _is_number(value: Any) -> bool:
    """True for a number that JSON allows: neither NaN nor infinity."""
    return type(value) in (int, float) and abs(value) < math.inf


#: For each type, a function that tells whether a JSON value has this type.
_IS: Dict[Any, Callable[[Any], bool]] = {
    str: lambda value: type(value) is str,
    bool: lambda value: type(value) is bool,
    int: lambda value: type(value) is int,
    float: _is_number,
    Optional[str]: lambda value: type(value) in (str, type(None)),
    Optional[int]: lambda value: type(value) in (int, type(None)),
    List[str]: lambda value: type(value) is list and {*map(type, value)} == {str},
    Tuple[float, float]: lambda value: (
        type(value) is list and len(value) == 2 and all(map(_is_number, value))
    ),
}


def _made(kind: Any, entries: Any) -> Any:
    """Make a *kind* from its *entries*; TypeError if their names or types are wrong."""
    if not isinstance(entries, dict):
        raise TypeError(f"{kind.__name__.lower()}: {entries!r}")
    for name, hint in get_type_hints(kind).items():
        if name in entries and not _IS[hint](entries[name]):
            raise TypeError(f"{name}: {entries[name]!r}")
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
    if (text.subwords in WITH_FILE) != (text.subword_file is not None):
        named = f"subwords {text.subwords!r} and subword_file {text.subword_file!r}"
        raise UsageError(f"{shown}: {SETTINGS} has {named}, which contradict each other")
