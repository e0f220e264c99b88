"""Import and export of folders that transformers loads without code of this plug-in.

A table describes each class; see :mod:`~fairseq_posenc.exchange.huggingface.table`.
"""

import re
from typing import Any, Dict, List, Mapping, Optional, Tuple

from torch import Tensor, nn

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.packages import import_extra
from fairseq_posenc.exchange import formats
from fairseq_posenc.exchange.exporter import (
    CARD_FLAGS,
    HEAD,
    SUBWORD_FLAGS,
    CheckpointExporter,
    Exported,
)
from fairseq_posenc.exchange.huggingface import folder as hf
from fairseq_posenc.exchange.huggingface.embeddings import start_of
from fairseq_posenc.exchange.huggingface.entries import (
    entries_of,
    expressible,
    label_entries,
    read_labels,
    settings_of,
)
from fairseq_posenc.exchange.huggingface.table import TRANSPOSED, Architecture, TransformersClass
from fairseq_posenc.exchange.huggingface.tensors import read_tensors, write_tensors
from fairseq_posenc.exchange.native import (
    DATA,
    LANGUAGES,
    VOCAB,
    NativeCheckpoint,
    read_translation,
)
from fairseq_posenc.exchange.reader import Reader
from fairseq_posenc.models import kinds

_MASK_NOTE = (
    "the tokenizer treats the name of a special symbol in a text as ordinary text; to use mask "
    "tokens, call it with split_special_tokens=False"
)


class ClassImporter(formats.Importer):
    """Reads a folder that a class of transformers saved."""

    def __init__(self, source: TransformersClass) -> None:
        self.source = source
        layouts = [joint.layout for stack in source.stacks for joint in stack.joints]
        self.transposed = (source.model_type,) if TRANSPOSED in layouts else ()

    def read(self, path: str, vocab: Optional[str]) -> formats.Imported:
        """See :class:`~fairseq_posenc.exchange.formats.Importer`."""
        folder = hf.open_folder(path, self.source.model_type, self.source.aliases)
        return read_class(self.source, folder, vocab)


def read_class(
    source: TransformersClass, folder: hf.Folder, file: Optional[str]
) -> formats.Imported:
    """Read the model in a folder of a class; *file* is a vocabulary outside the folder, or None."""
    config = folder.config
    name = config.architecture(list(source.architectures))
    built = source.architectures[name]
    built, head = built.named(built.usual), built.usual
    sizes = [len(folder.parameters), *(n for x in folder.parameters.values() for n in x.shape)]
    settings = settings_of(source, built, config._replace(largest=max(sizes) or config.largest))
    vocab = source.numbering.read(folder.path, file, config)
    folder, notes = hf.agreed(source, folder, vocab)
    tied = head is not None or not hf.has_own_output(source, folder)
    reader = Reader(folder.weights, folder.parameters, vocab)
    notes += read_tensors(source, reader, built, settings, config, tied)
    reader.finish(f"{config.path} ({name})")
    if source.kind is kinds.MASKED:
        settings.setdefault("load_checkpoint_heads", head is not None)
    labels: List[str] = []
    if head is not None:
        notes.append(f"the language-model head is untrained, since {folder.path} has none")
        last = re.compile(rf"{head}\.(out_proj\.)?weight$")
        (rows,) = (len(x) for key, x in reader.parameters.items() if last.search(key))
        labels, note = read_labels(config, head, rows)
        notes.append(note)
    notes += source.numbering.notes(vocab, config)
    order = {stack.side: vocab.order for stack in source.stacks}
    start = start_of(source, reader, config) if source.start else None
    foreign = _reference(source, folder.path, name, order, vocab.missing, start)
    return formats.Imported(
        *(settings, reader.parameters, reader.origin, vocab, foreign, head, notes),
        *(source.kind, labels),
    )


def _reference(
    table: TransformersClass,
    path: str,
    name: str,
    numbers: Mapping[str, Tensor],
    missing: int = 0,
    start: Optional[int] = None,
) -> formats.ForeignModel:
    """The model of a folder, run by transformers, as the reference for ``--verify``."""

    def load() -> nn.Module:
        transformers = import_extra("transformers", "--verify")
        model = hf.load_with(getattr(transformers, name), path, table.computed)
        table.prepare(model)
        return model

    segments, labels = bool(table.stacks[0].segments), bool(table.architectures[name].heads)
    description = f"{name} of transformers"
    return hf.reference(load, description, numbers, missing, start, segments, labels)


#: The flags of an export, for each kind of model.
_FLAGS = {
    kinds.CAUSAL.name: (VOCAB,),
    kinds.MASKED.name: (VOCAB, HEAD, DATA),
    kinds.TRANSLATION.name: (DATA, *LANGUAGES),
}


class ClassExporter(CheckpointExporter):
    """Writes a folder that a class of transformers loads."""

    def __init__(self, target: TransformersClass) -> None:
        self.target = target
        subwords = SUBWORD_FLAGS if target.numbering.splits else ()
        self.flags = (*_FLAGS[target.kind.name], *subwords, *CARD_FLAGS)

    def read(self, wanted: formats.Wanted) -> NativeCheckpoint:
        """See :class:`~fairseq_posenc.exchange.exporter.CheckpointExporter`."""
        if self.target.kind is kinds.TRANSLATION:
            return read_translation(wanted, self.target.name)
        return super().read(wanted)

    def write(self, checkpoint: NativeCheckpoint, head: Optional[str], folder: str) -> Exported:
        """See :class:`~fairseq_posenc.exchange.exporter.CheckpointExporter`."""
        target, settings, path = self.target, checkpoint.settings, checkpoint.path
        if checkpoint.kind is not target.kind:
            raise UsageError(
                f"{path}: {target.name} is for models of --arch {target.kind.arch}, but this "
                f"model has --arch {checkpoint.kind.arch}"
            )
        name, built = _choose(target, checkpoint, head)
        known = expressible(target, name, built, settings)
        formats.refuse_inexpressible(path, target.kind.family, settings, known)
        hides = target.output_biases != () or target.kind is not kinds.TRANSLATION
        segments = ["token_type_ids"] if target.stacks[0].segments else []
        inputs = ["input_ids", *segments, "attention_mask"]
        texts = target.numbering.write(checkpoint, inputs, hides, folder)
        entries: Dict[str, Any] = {
            "model_type": target.model_type,
            "architectures": [name],
            **entries_of(target, built, settings, path),
            **texts.entries,
        }
        state, notes = write_tensors(target, checkpoint, built, texts, entries)
        sizes = [len(order) for order in texts.orders.values()]
        entries["tie_word_embeddings"] = target.output not in state
        entries["vocab_size"] = sizes[0]
        if target.two_embeddings:
            entries["share_encoder_decoder_embeddings"] = target.shared in state
            entries["decoder_vocab_size"] = sizes[-1]
        if head is not None:
            entries.update(label_entries(checkpoint, head, built, state))
        hf.write_weights(folder, {**entries, "torch_dtype": "float32"}, state)
        numbers = {
            side: order[: texts.known[side]].argsort() for side, order in texts.orders.items()
        }
        start = int(numbers[target.stacks[-1].side][kinds.END]) if target.start else None
        masked = (_MASK_NOTE,) if name.endswith("MaskedLM") else ()
        foreign = _reference(target, folder, name, numbers, 0, start)
        return Exported(foreign, (*notes, *texts.notes, *masked))


def _choose(
    target: TransformersClass, checkpoint: NativeCheckpoint, head: Optional[str]
) -> Tuple[str, Architecture]:
    """The name and the entry of the architecture for *head*; None is the language-model head."""
    heads = ""
    if head is not None:
        token = head in checkpoint.heads(kinds.TOKEN_HEADS)
        heads = kinds.TOKEN_HEADS if token else kinds.CLASSIFICATION_HEADS
    for name, built in target.architectures.items():
        if built.heads == heads and built.when(checkpoint.settings):
            return name, built.named(head)
    raise UsageError(
        f"--head {head or 'lm'}: {target.name} has no such head; export a different head, "
        "or lm for the language-model head"
    )


def register_class(name: str, table: TransformersClass) -> None:
    """Register a class of transformers as a format for imports and exports."""
    formats.register_format(
        name,
        summary=f"a folder of {table.name}",
        importer=ClassImporter(table),
        exporter=ClassExporter(table),
    )
