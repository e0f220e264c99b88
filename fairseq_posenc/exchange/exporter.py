"""Exporting: a model of ours is written to a temporary folder, checked, and moved into place.

Some checkpoints are adapters: they are not whole models, but change one.  Formats whose exporter
has a ``target`` can write adapters.
"""

import os
from typing import Any, Callable, ContextManager, List, NamedTuple, Optional, Sequence, Tuple

from torch import nn

from fairseq_posenc.basics.errors import UsageError, flag_of
from fairseq_posenc.basics.files import files_in, refuse_own_source, staging
from fairseq_posenc.exchange.formats import Exporter, Flag, ForeignModel, Report, Wanted
from fairseq_posenc.exchange.huggingface.splitters import Subwords
from fairseq_posenc.exchange.native import SEARCH, VOCAB, NativeCheckpoint, read_native
from fairseq_posenc.exchange.verify import compare
from fairseq_posenc.layers.heads import PRETRAINING
from fairseq_posenc.models.kinds import CLASSIFICATION_HEADS, TOKEN_HEADS
from fairseq_posenc.serving.card import write_card
from fairseq_posenc.serving.model_folder import CHECKPOINT, Search, read_model_folder
from fairseq_posenc.serving.preparation import Text
from fairseq_posenc.serving.subwords import SUBWORD_FILES, SUBWORDS

HEAD = Flag(
    "head",
    "the head to export; lm: the language-model head; with onnx, features: no head",
    "NAME",
)
ABOUT = Flag("about", "a sentence on the data, for the card", "TEXT")
#: The flags of an exporter that writes a card.
CARD_FLAGS = (ABOUT, Flag("scores", "texts with scores, for the card", "FILE", nargs="+"))
#: How text was prepared.
SUBWORD_FLAGS = (
    Flag("text_of", "the folder of a packed model that says how text was prepared", "FOLDER"),
    Flag("subwords", "without --text-of: subwords of the training text (none)", choices=SUBWORDS),
    Flag("subword_file", "merges, model of SentencePiece, or tokenizer", "FILE"),
)


class Exported(NamedTuple):
    """A model written in a foreign format."""

    # what ``--verify`` compares with, or None if nothing can run the foreign model
    foreign: Optional[ForeignModel] = None
    notes: Sequence[str] = ()  # what the user should know
    # the model that was written and its head (None: the language-model head); the export sets them
    checkpoint: Any = None
    head: Optional[str] = None

    def compare(self, model: nn.Module) -> float:
        """The largest difference between the logits of a loaded model and of the foreign one."""
        path, kind = self.checkpoint.path, self.checkpoint.kind
        return compare(model, kind, self.head, self.foreign, path)


#: Writes a whole model, given a request and a folder.
WritesWhole = Callable[[Wanted, str], Exported]


class Adapter(NamedTuple):
    """A kind of adapter: its checkpoints of this plug-in, and its folders of another toolkit."""

    flags: Tuple[Flag, ...]  # flags of an export of an adapter
    import_flags: Tuple[Flag, ...]  # flags of an import
    is_checkpoint: Callable[[str], bool]  # whether a path is a checkpoint of an adapter alone
    is_folder: Callable[[str], bool]  # whether a path is a foreign folder of an adapter alone
    # writes an adapter, given the request, the function that writes a whole model, the class of
    # transformers that loads the folder (or None), and an existing empty folder; returns what was
    # written, and the largest difference of the logits if the request asks for it
    export: Callable[[Wanted, WritesWhole, Any, str], Tuple[Exported, Optional[float]]]
    # makes a temporary folder with the whole model: the base, changed by a foreign adapter
    merged: Callable[[Wanted], ContextManager[str]]


ADAPTERS: List[Adapter] = []


def adapter_in(wanted: Wanted, holds: Callable[[Adapter], bool]) -> Optional[Adapter]:
    """The adapter that *wanted* names, or None for a whole model.

    Args:
        holds: whether its path is an adapter of a given kind.

    Raises:
        UsageError: flags of an adapter were given for a whole model.
    """
    found = next((each for each in ADAPTERS if holds(each)), None)
    for flag in () if found else (flag for each in ADAPTERS for flag in each.flags):
        if wanted.get(flag.name) is not None:
            raise UsageError(
                f"{flag_of(flag.name)} {wanted.get(flag.name)}: {wanted.path} is no adapter, it "
                "is a whole model; drop it"
            )
    return found


class CheckpointExporter(Exporter):
    """Writes folders, given a masked language model or a language model of this plug-in."""

    flags: Tuple[Flag, ...] = (VOCAB, HEAD)
    #: the class of transformers that loads the folders, if one does; adapters need it
    target: Any = None

    def write(self, checkpoint: NativeCheckpoint, head: Optional[str], folder: str) -> Exported:
        """Write a model.

        Args:
            head: the name of the head to export, None for the language-model head.

        Raises:
            UsageError: the format cannot express the model.
        """
        raise NotImplementedError

    def read(self, wanted: Wanted) -> NativeCheckpoint:
        """Read the model that *wanted* names."""
        return read_native(wanted.path, wanted.get("vocab"))

    def takes(self) -> Tuple[Flag, ...]:
        """See :class:`~fairseq_posenc.exchange.formats.Exporter`."""
        return (*self.flags, *(flag for each in ADAPTERS for flag in each.flags))

    def export(self, wanted: Wanted) -> Report:
        """See :class:`~fairseq_posenc.exchange.formats.Exporter`."""
        refuse_own_source(wanted.out, wanted.path)
        adapter = adapter_in(wanted, lambda each: each.is_checkpoint(wanted.path))
        difference = None
        with staging(wanted.out) as side:
            if adapter is not None:
                written, difference = adapter.export(wanted, self.whole, self.target, side)
            else:
                written = self.whole(wanted, side)
                checkpoint = written.checkpoint
                if wanted.verify:
                    difference = written.compare(checkpoint.load(checkpoint.path, {}))
                if ABOUT in self.flags:
                    name = os.path.basename(os.path.abspath(wanted.out))
                    told = (checkpoint.path, checkpoint.options, written.notes)
                    write_card(side, name, *told, difference)
            files = [os.path.join(wanted.out, name) for name in files_in(side)]
        compared = written.foreign.description if written.foreign and wanted.verify else ""
        return Report(files, list(written.notes), difference, compared)

    def whole(self, wanted: Wanted, folder: str) -> Exported:
        """Write a whole model."""
        wanted, subwords, search = prepared(wanted)
        checkpoint = self.read(wanted)
        checkpoint = checkpoint._replace(
            data=wanted.get("data") or checkpoint.data,
            subwords=subwords,
            options=wanted.options,
            search=search,
        )
        head = choose_head(checkpoint, wanted.get("head"))
        written = self.write(checkpoint, head, folder)
        notes = [*written.notes, *checkpoint.notes]
        return written._replace(notes=notes, checkpoint=checkpoint, head=head)


def choose_head(checkpoint: NativeCheckpoint, head: Optional[str]) -> Optional[str]:
    """The head to export, by the name given with ``--head``; None is the language-model head.

    Without a name, it is the only head that is not of pre-training, if there is one.

    Raises:
        UsageError: there is no head of this name, or several without a name given.
    """
    known = [*checkpoint.heads(CLASSIFICATION_HEADS), *checkpoint.heads(TOKEN_HEADS)]
    usual = [name for name in known if f"{CLASSIFICATION_HEADS}{name}" not in PRETRAINING]
    if head is None and len(usual) > 1:
        raise UsageError(
            f"{checkpoint.path}: has several heads, {', '.join(known)}; choose one with --head, or "
            "--head lm for the language-model head"
        )
    if head is None or head == "lm":
        return usual[0] if usual and head is None else None
    if head not in known:
        raise UsageError(
            f"--head {head}: {checkpoint.path} has {', '.join(known) or 'no classification head'}; "
            "lm is the language-model head"
        )
    return head


def prepared(wanted: Wanted) -> Tuple[Wanted, Optional[Subwords], Search]:
    """The request with the path of the checkpoint, how its text was prepared, and its search.

    Args:
        wanted: the request; its path can be a model folder, which tells all three.

    Raises:
        UsageError: a folder does not tell them, or flags contradict each other.
    """
    if not os.path.isdir(wanted.path):
        return wanted, subwords_of(wanted), SEARCH
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
