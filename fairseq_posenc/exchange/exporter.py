"""Export of our models: each is written to a temporary folder, checked, and moved into place.

A checkpoint can hold an adapter, which changes a model, instead of a whole model.  Only an exporter
with a ``target`` can write adapters.
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
from fairseq_posenc.serving.subwords import SUBWORDS, check_subword_file

HEAD = Flag(
    "head",
    "head to export; lm: the language-model head; features (only with onnx): no head",
    "NAME",
)
ABOUT = Flag("about", "a sentence about the training data, for the model card", "TEXT")
#: The flags of an exporter that writes a model card.
CARD_FLAGS = (ABOUT, Flag("scores", "text files with scores for the model card", "FILE", nargs="+"))
#: The flags that tell an exporter how text was prepared.
SUBWORD_FLAGS = (
    Flag("text_of", "folder of a packed model whose text was prepared in the same way", "FOLDER"),
    Flag("subwords", "kind of subwords, if not from --text-of (default: none)", choices=SUBWORDS),
    Flag("subword_file", "BPE merges, SentencePiece model, or tokenizer folder", "FILE"),
)


class Exported(NamedTuple):
    """A model written in a foreign format."""

    # the written model as the reference for ``--verify``, or None if nothing can run it
    foreign: Optional[ForeignModel] = None
    notes: Sequence[str] = ()  # what the user should know
    # the exported checkpoint and its head (None: the language-model head); ``whole`` sets both
    checkpoint: Any = None
    head: Optional[str] = None

    def compare(self, model: nn.Module) -> float:
        """The largest difference between the logits of *model* and of the written model."""
        path, kind = self.checkpoint.path, self.checkpoint.kind
        return compare(model, kind, self.head, self.foreign, path)


#: A function that writes a whole model, given a request and a folder.
WritesWhole = Callable[[Wanted, str], Exported]


class Adapter(NamedTuple):
    """A kind of adapter, as a checkpoint of this plug-in and as a folder of another toolkit."""

    flags: Tuple[Flag, ...]  # the flags of ``export`` for adapters
    import_flags: Tuple[Flag, ...]  # the flags of ``import`` for adapters
    is_checkpoint: Callable[[str], bool]  # whether a path is the checkpoint of an adapter
    is_folder: Callable[[str], bool]  # whether a path is a foreign folder of an adapter
    # writes an adapter, given the request, the function that writes a whole model, the class of
    # transformers that loads the folder (or None), and an existing empty folder; returns the
    # written adapter and, with ``--verify``, the largest difference between the logits
    export: Callable[[Wanted, WritesWhole, Any, str], Tuple[Exported, Optional[float]]]
    # makes a temporary folder with the whole model: the base, merged with a foreign adapter
    merged: Callable[[Wanted], ContextManager[str]]


ADAPTERS: List[Adapter] = []


def adapter_in(wanted: Wanted, holds: Callable[[Adapter], bool]) -> Optional[Adapter]:
    """The kind of the adapter at the path of *wanted*, or None for a whole model.

    Args:
        holds: tells whether the path of *wanted* has an adapter of a kind.

    Raises:
        UsageError: the path is a whole model, but the request has flags for adapters.
    """
    found = next((each for each in ADAPTERS if holds(each)), None)
    for flag in () if found else (flag for each in ADAPTERS for flag in each.flags):
        if wanted.get(flag.name) is not None:
            raise UsageError(
                f"{flag_of(flag.name)} {wanted.get(flag.name)}: is for adapters, but "
                f"{wanted.path} is a whole model; drop it"
            )
    return found


class CheckpointExporter(Exporter):
    """Writes folders; :meth:`read` accepts masked and causal language models."""

    flags: Tuple[Flag, ...] = (VOCAB, HEAD)
    #: the class of transformers that loads the folders, or None; an adapter needs one
    target: Any = None

    def write(self, checkpoint: NativeCheckpoint, head: Optional[str], folder: str) -> Exported:
        """Write a model into *folder*.

        Args:
            head: the name of the head to export, or None for the language-model head.

        Raises:
            UsageError: the format cannot represent the model.
        """
        raise NotImplementedError

    def read(self, wanted: Wanted) -> NativeCheckpoint:
        """Load the checkpoint at the path of *wanted*."""
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
        """Write a whole model into *folder*."""
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
    """The name of the head to export, or None for the language-model head.

    If *head* is None, the head that is not for pre-training is chosen, if the model has one.

    Raises:
        UsageError: the model has no such head, or *head* is None and several heads could be chosen.
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
            "give the name of one of its heads, or lm for the language-model head"
        )
    return head


def prepared(wanted: Wanted) -> Tuple[Wanted, Optional[Subwords], Search]:
    """Return the request for a checkpoint file, the model's subwords, and its search settings.

    Args:
        wanted: the request; its path can be a model folder, from which all three are read.

    Raises:
        UsageError: the model folder has no checkpoint, or flags contradict each other.
    """
    if not os.path.isdir(wanted.path):
        return wanted, subwords_of(wanted), SEARCH
    folder = read_model_folder(wanted.path, "export")
    if folder.checkpoint is None:
        raise UsageError(f"{wanted.path}: has no {CHECKPOINT}; give the checkpoint itself")
    said = {
        "data": wanted.path,
        "source_lang": folder.text.source_lang,
        "target_lang": folder.text.target_lang,
        **({} if any(map(wanted.get, ("subwords", "subword_file"))) else {"text_of": wanted.path}),
    }
    found = wanted._replace(path=folder.checkpoint, options={**said, **wanted.options})
    return found, subwords_of(found), folder.search


def subwords_of(wanted: Wanted) -> Optional[Subwords]:
    """How text was prepared, according to the flags of an export; None without such flags."""
    kind, file, folder = map(wanted.get, ("subwords", "subword_file", "text_of"))
    if folder is not None:
        if kind is not None or file is not None:
            raise UsageError(f"--text-of {folder}: give it without --subwords and --subword-file")
        model = read_model_folder(folder, "--text-of")
        names = (model.text.subword_file, model.text.target_subword_file or model.text.subword_file)
        return Subwords(model.text, *(None if n is None else model.file(n) for n in names))
    if kind is None and file is None:
        return None
    kind = kind or "none"
    check_subword_file(kind, file)
    return Subwords(Text(subwords=kind, subword_file=file), file, file)
