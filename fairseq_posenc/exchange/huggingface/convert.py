"""Folders of classes of transformers, read and written, without code of this plug-in.

A class is a table; see :mod:`~fairseq_posenc.exchange.huggingface.table`.
"""

from typing import Any, Dict, List, Mapping, Optional, Tuple

import torch
from torch import Tensor, nn

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.exchange.formats import (
    ForeignModel,
    Imported,
    Importer,
    Wanted,
    refuse_inexpressible,
    register_format,
)
from fairseq_posenc.exchange.huggingface import folder as hf
from fairseq_posenc.exchange.huggingface.agreement import agreed, has_own_output
from fairseq_posenc.exchange.huggingface.embeddings import start_of
from fairseq_posenc.exchange.huggingface.entries import entries_of, expressible, settings_of
from fairseq_posenc.exchange.huggingface.heads import label_entries, read_labels
from fairseq_posenc.exchange.huggingface.layouts import TRANSPOSED
from fairseq_posenc.exchange.huggingface.reference import reference
from fairseq_posenc.exchange.huggingface.table import Architecture, TransformersClass
from fairseq_posenc.exchange.huggingface.tensors import read_tensors, write_tensors
from fairseq_posenc.exchange.huggingface.tokenizers.symbols import MASK_NOTE
from fairseq_posenc.exchange.native import VOCAB, NativeCheckpoint
from fairseq_posenc.exchange.prepared import CARD_FLAGS, SUBWORD_FLAGS
from fairseq_posenc.exchange.reader import LEADING, Reader, Vocabulary
from fairseq_posenc.exchange.source import DATA, LANGUAGES, read_translation
from fairseq_posenc.exchange.transfer import HEAD, CheckpointExporter, Exported
from fairseq_posenc.models.kinds import (
    CAUSAL,
    CLASSIFICATION_HEADS,
    MASKED,
    TOKEN_HEADS,
    TRANSLATION,
)

_END = LEADING.index("</s>")


class ClassImporter(Importer):
    """Reads a folder of a class of transformers.

    Args:
        source: the class.
    """

    def __init__(self, source: TransformersClass) -> None:
        self.source = source
        layouts = [joint.layout for stack in source.stacks for joint in stack.joints]
        self.transposed = (source.model_type,) if TRANSPOSED in layouts else ()

    def read(self, path: str, vocab: Optional[str]) -> Imported:
        """See :class:`~fairseq_posenc.exchange.formats.Importer`."""
        source = self.source
        folder = hf.open_folder(path, source.model_type, source.aliases)
        config = folder.config
        name = config.architecture(list(source.architectures))
        built = source.architectures[name]
        built, head = built.named(built.usual), built.usual
        settings = settings_of(source, built, config)
        vocabulary = source.numbering.read(path, vocab, config)
        folder, notes = _agreed(source, folder, vocabulary)
        tied = head is not None or not _has_own_output(source, folder)
        reader = Reader(folder.weights, folder.parameters, vocabulary)
        notes += read_tensors(source, reader, built, settings, config, tied)
        reader.finish(f"config.json ({name})")
        if source.kind is MASKED:
            settings["load_checkpoint_heads"] = head is not None
        labels: List[str] = []
        if head is not None:
            notes.append(f"the language-model head is untrained, since {path} has none")
            notes.append(config.classes_note(head))
            labels = read_labels(config)
        notes += source.numbering.notes(vocabulary, config)
        order = {stack.side: vocabulary.order for stack in source.stacks}
        start = start_of(source, reader, config) if source.start else None
        imported = Imported(
            settings,
            reader.parameters,
            reader.origin,
            vocabulary,
            _reference(source, path, name, order, vocabulary.missing, start),
            head,
            notes,
            source.kind,
            labels,
        )
        return self.adapted(imported, name, folder)

    def adapted(self, imported: Imported, name: str, folder: hf.Folder) -> Imported:
        """The imported model, where a class has more than one kind of model or of reference.

        Args:
            name: the architecture.
            folder: the folder.
        """
        return imported


def _agreed(
    source: TransformersClass, folder: hf.Folder, vocabulary: Vocabulary
) -> Tuple[hf.Folder, List[str]]:
    """The folder without rows behind the last symbol, and notes on them."""
    tensors = folder.parameters
    if not source.shared:
        tensors = hf.with_prefix(tensors, source.rows[0])
    flat = {name: tensors[name].flatten() for name in source.output_biases if name in tensors}
    folder = folder._replace(parameters={**tensors, **flat})
    return agreed(folder, vocabulary, source.rows, source.width)


def _has_own_output(source: TransformersClass, folder: hf.Folder) -> bool:
    """True if the output is apart from the embedding; refuses tensors that contradict that."""
    tensors, names = folder.parameters, [stack.embedding for stack in source.stacks]
    last = names[-1] if names[-1] in tensors or not source.shared else source.shared
    usual, *others = source.output_biases or ("",)
    pairs = [(source.output, last), *((other, usual) for other in others)]
    if source.shares(folder.config):
        pairs += [(name, source.shared) for name in names]
    return has_own_output(folder, source.tied(folder.config), *pairs)


def _reference(
    table: TransformersClass,
    path: str,
    name: str,
    numbers: Mapping[str, Tensor],
    missing: int,
    start: Optional[int],
) -> ForeignModel:
    """The logits of a folder, computed by transformers."""

    def load() -> nn.Module:
        model = hf.load_model(path, name, table.computed)
        table.prepare(model)
        return model

    segments, labels = "token_type_ids" in table.inputs, bool(table.architectures[name].heads)
    description = f"{name} of transformers"
    return reference(load, description, numbers, missing, start, segments, labels)


#: The flags of an export by the kind of model.
_FLAGS = {
    CAUSAL.name: (VOCAB,),
    MASKED.name: (VOCAB, HEAD, DATA),
    TRANSLATION.name: (DATA, *LANGUAGES),
}


class ClassExporter(CheckpointExporter):
    """Writes a folder that a class of transformers loads.

    Args:
        target: the class.
    """

    def __init__(self, target: TransformersClass) -> None:
        self.target = target
        subwords = SUBWORD_FLAGS if target.numbering.splits else ()
        self.flags = (*_FLAGS[target.kind.name], *subwords, *CARD_FLAGS)

    def read(self, wanted: Wanted) -> NativeCheckpoint:
        """See :class:`~fairseq_posenc.exchange.transfer.CheckpointExporter`."""
        if self.target.kind is TRANSLATION:
            return read_translation(wanted, self.target.name)
        return super().read(wanted)

    def write(self, checkpoint: NativeCheckpoint, head: Optional[str], folder: str) -> Exported:
        """See :class:`~fairseq_posenc.exchange.transfer.CheckpointExporter`."""
        target, settings, path = self.target, checkpoint.settings, checkpoint.path
        if checkpoint.kind is not target.kind:
            raise UsageError(
                f"{path}: {target.name} is for models of --arch {target.kind.arch}, and this is "
                f"one of --arch {checkpoint.kind.arch}"
            )
        name, built = _choose(target, checkpoint, head)
        family = target.kind.family
        refuse_inexpressible(path, family, settings, expressible(target, name, built, settings))
        hides = target.output_biases != () or target.kind is not TRANSLATION
        texts = target.numbering.write(checkpoint, target.inputs, hides, folder)
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
            entries.update(label_entries(checkpoint, head, _classes(built, head, state)))
        hf.write_weights(folder, {**entries, "torch_dtype": "float32"}, state)
        numbers = {side: _inverse(order, texts.known[side]) for side, order in texts.orders.items()}
        start = int(numbers[target.stacks[-1].side][_END]) if target.start else None
        masked = (MASK_NOTE,) if name.endswith("MaskedLM") else ()
        foreign = _reference(target, folder, name, numbers, 0, start)
        return Exported(foreign, (*notes, *texts.notes, *masked))


def _choose(
    target: TransformersClass, checkpoint: NativeCheckpoint, head: Optional[str]
) -> Tuple[str, Architecture]:
    """The architecture for *head*, None being the output of a language model.

    Raises:
        UsageError: the class has none.
    """
    heads = ""
    if head is not None:
        token = head in checkpoint.heads(TOKEN_HEADS)
        heads = TOKEN_HEADS if token else CLASSIFICATION_HEADS
    for name, built in target.architectures.items():
        if built.heads == heads and built.when(checkpoint.settings):
            return name, built.named(head)
    raise UsageError(
        f"--head {head or 'lm'}: {target.name} has nothing like it; export another head, or lm for "
        "the language-model head"
    )


def _classes(built: Architecture, head: str, state: Mapping[str, Tensor]) -> int:
    """The number of classes of a head."""
    last = next(
        theirs for ours, theirs in built.modules.items() if ours.endswith(("out_proj", head))
    )
    return len(state[f"{last}.weight"])


def _inverse(order: Tensor, known: int) -> Tensor:
    """The number in a folder of each symbol of our dictionary, (V,)."""
    inverse = torch.empty(known, dtype=torch.long)
    inverse[order[:known]] = torch.arange(known)
    return inverse


def register_class(name: str, table: TransformersClass) -> None:
    """Register a class of transformers as a format, read and written.

    Args:
        name: the name of the format.
        table: the class.
    """
    register_format(
        name,
        summary=f"a folder of {table.name}",
        importer=ClassImporter(table),
        exporter=ClassExporter(table),
    )
