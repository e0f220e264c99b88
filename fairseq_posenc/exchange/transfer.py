"""Importing and exporting: read, write to a temporary folder, check, then move into place."""

import contextlib
import os
import shutil
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.files import (
    GIVE_A_FOLDER,
    refuse_own_source,
    remove_leftovers,
    replace_file,
    temporary_name,
    writing,
)
from fairseq_posenc.checkpoints.reading import Checkpoint, write_checkpoint
from fairseq_posenc.exchange import formats, native
from fairseq_posenc.exchange.adapters import ADAPTERS, Written, adapter_in
from fairseq_posenc.exchange.reader import size_of
from fairseq_posenc.exchange.source import ABOUT, prepared
from fairseq_posenc.exchange.verify import compare
from fairseq_posenc.layers.heads import PRETRAINING
from fairseq_posenc.models.kinds import CLASSIFICATION_HEADS, TOKEN_HEADS, Parameters
from fairseq_posenc.serving.card import write_card

HEAD = formats.Flag(
    "head",
    "the head to export; lm for the language-model head, and with onnx features for none",
    "NAME",
)
#: Ends of the names of weights.
_WEIGHTS = (".pt", ".safetensors")


class Exported(NamedTuple):
    """A model written in a foreign format."""

    # what ``--verify`` compares with, or None if nothing can run the foreign model
    foreign: Optional[formats.ForeignModel] = None
    notes: Tuple[str, ...] = ()  # what the user should know


def import_flags() -> Dict[formats.Flag, List[str]]:
    """The flags of all importers, with the names of the formats that take each."""
    flags = (native.VOCAB, *(flag for each in ADAPTERS for flag in each.import_flags))
    return {
        flag: [name for name, entry in formats.FORMATS.items() if entry.importer] for flag in flags
    }


def import_checkpoint(importer: formats.Importer, wanted: formats.Wanted) -> formats.Report:
    """Convert a foreign model into ``checkpoint.pt`` and ``dict.txt``.

    Args:
        wanted: what was asked for; the foreign model can be an adapter, which is merged.

    Raises:
        UsageError: the source cannot be read or expressed, *wanted.out* cannot be written to, or
            the two models differ by more than 1e-4; nothing is written then.
    """
    source = wanted.path
    refuse_own_source(wanted.out, source if os.path.isdir(source) else os.path.dirname(source))
    adapter = adapter_in(wanted, lambda each: each.is_folder(source))
    with adapter.merged(wanted) if adapter else contextlib.nullcontext(source) as whole:
        return _import(importer, wanted._replace(path=whole))


def _import(importer: formats.Importer, wanted: formats.Wanted) -> formats.Report:
    source, out_dir = wanted.path, wanted.out
    imported = importer.read(source, wanted.get("vocab"))
    kind, foreign = imported.kind, imported.foreign
    with staging(out_dir) as side:
        path, dictionary = os.path.join(side, "checkpoint.pt"), os.path.join(side, "dict.txt")
        names = ["dict.txt", *(f"dict.{language}.txt" for language in kind.languages)]
        for name in names:  # fairseq's task finds those of its languages
            text = imported.vocabulary.text(kind.adds_mask)
            Path(side, name).write_text(text, "utf-8")
        if imported.labels:
            labels = Path(side, "label", "dict.txt")
            labels.parent.mkdir()
            labels.write_text("".join(f"{label} 1\n" for label in imported.labels), "utf-8")
        checkpoint = native.new_checkpoint(imported.settings, out_dir, kind)
        checkpoint["model"] = _complete(imported, checkpoint, dictionary)
        write_checkpoint(checkpoint, path)
        model = native.load(path, dictionary, kind)  # check that fairseq can load it
        difference = None
        if wanted.verify:
            difference = compare(model, kind, imported.head, foreign, source)
        files = [os.path.join(out_dir, name) for name in _files(side)]
        flags = f"flags to pre-train it further: {native.flags_of(imported.settings, kind)}"
    description = foreign.description if foreign and wanted.verify else ""
    return formats.Report(files, [*imported.notes, flags], difference, description)


class CheckpointExporter(formats.Exporter):
    """Writes folders, given a masked language model or a language model of this plug-in."""

    flags: Tuple[formats.Flag, ...] = (native.VOCAB, HEAD)
    #: the class of transformers that loads the folders, if one does; adapters need it
    target: Any = None

    def write(
        self, checkpoint: native.NativeCheckpoint, head: Optional[str], folder: str
    ) -> Exported:
        """Write a model.

        Args:
            head: the name of the head to export, None for the language-model head.

        Raises:
            UsageError: the format cannot express the model.
        """
        raise NotImplementedError

    def read(self, wanted: formats.Wanted) -> native.NativeCheckpoint:
        """Read the model that *wanted* names."""
        return native.read_native(wanted.path, wanted.get("vocab"))

    def takes(self) -> Tuple[formats.Flag, ...]:
        """See :class:`~fairseq_posenc.exchange.formats.Exporter`."""
        return (*self.flags, *(flag for each in ADAPTERS for flag in each.flags))

    def export(self, wanted: formats.Wanted) -> formats.Report:
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
            files = [os.path.join(wanted.out, name) for name in _files(side)]
        compared = written.foreign.description if written.foreign and wanted.verify else ""
        return formats.Report(files, list(written.notes), difference, compared)

    def whole(self, wanted: formats.Wanted, folder: str) -> Written:
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
        exported = self.write(checkpoint, head, folder)
        notes = [*exported.notes, *checkpoint.notes]
        return Written(checkpoint, head, exported.foreign, notes)


def choose_head(checkpoint: native.NativeCheckpoint, head: Optional[str]) -> Optional[str]:
    """The head to export, by the name given with ``--head``; None is the language-model head.

    Without a name it is the only head but those of pre-training, if there is one.

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


def _complete(imported: formats.Imported, checkpoint: Checkpoint, dictionary: str) -> Parameters:
    """All parameters of the model that *checkpoint* describes, in its order."""
    kind = imported.kind
    model = native.build(checkpoint, dictionary, kind)
    trained = {name for name, _ in model.named_parameters() if not name.startswith(kind.head)}
    parameters: Parameters = {}
    for name, value in model.state_dict().items():
        given = imported.parameters.get(name)
        if given is None and name in trained:
            raise UsageError(f"{name}: the source has no counterpart of this parameter")
        if given is not None and given.shape != value.shape:
            raise UsageError(
                f"{imported.origin[name]} has size {size_of(given)}, but the settings "
                f"beside it require {size_of(value)}"
            )
        parameters[name] = value if given is None else given
    parameters.update(imported.parameters)  # heads, which fairseq adds while it loads
    output = kind.head + "weight"
    if output not in imported.parameters:
        parameters[output] = parameters[kind.embedding]
    return parameters


def _files(folder: str) -> List[str]:
    """The files in a folder and those inside it, by their paths from there."""
    found = [path.relative_to(folder) for path in Path(folder).rglob("*") if path.is_file()]
    return sorted(map(str, found))


@contextlib.contextmanager
def staging(out_dir: str) -> Iterator[str]:
    """A temporary folder whose files move to *out_dir* if the block succeeds.

    Args:
        out_dir: created if necessary; existing files of the same names are replaced atomically.

    Yields:
        an empty folder inside *out_dir*.

    Raises:
        UsageError: *out_dir* cannot be created or written to.
    """
    created = not os.path.isdir(out_dir)
    folder = os.path.join(out_dir, temporary_name(".convert"))
    try:
        with writing(Path(folder), out_dir, GIVE_A_FOLDER):
            os.makedirs(out_dir, exist_ok=True)
            remove_leftovers(out_dir, ".convert")
            shutil.rmtree(folder, ignore_errors=True)  # an earlier process had this number
            os.mkdir(folder)
            yield folder
            # the weights last: where they are, everything is
            for name in sorted(_files(folder), key=lambda name: (name.endswith(_WEIGHTS), name)):
                os.makedirs(os.path.dirname(os.path.join(out_dir, name)), exist_ok=True)
                with replace_file(os.path.join(out_dir, name)) as partial:
                    shutil.move(os.path.join(folder, name), str(partial))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if created:
            with contextlib.suppress(OSError):
                os.rmdir(out_dir)  # only if it is still empty
