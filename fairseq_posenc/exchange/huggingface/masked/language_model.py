"""Masked language models and classifiers of transformers' native classes, read and written."""

from typing import List, Optional

import torch

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.exchange.config import Config
from fairseq_posenc.exchange.formats import Imported, Importer, register_format
from fairseq_posenc.exchange.huggingface import folder as hf
from fairseq_posenc.exchange.huggingface import joints
from fairseq_posenc.exchange.huggingface.agreement import agreed, has_own_output
from fairseq_posenc.exchange.huggingface.encoder_heads import Architecture, read_labels
from fairseq_posenc.exchange.huggingface.masked.base import MaskedClass
from fairseq_posenc.exchange.huggingface.masked.classes import CLASSES, padding_of
from fairseq_posenc.exchange.huggingface.masked.export import MaskedExporter
from fairseq_posenc.exchange.huggingface.names import NORM_1, NORM_2
from fairseq_posenc.exchange.native import size_of
from fairseq_posenc.exchange.reader import (
    MASK,
    Reader,
    Vocabulary,
    dictionary_vocabulary,
    read_vocabulary,
)
from fairseq_posenc.models.kinds import (
    EMBEDDING,
    ENCODER,
    LM_HEAD,
    PAD,
    SEGMENTS,
    TABLE,
    Settings,
)

#: Ends of the names of tensors that the classes compute themselves.
_COMPUTED = (".position_ids", ".rotary_emb.inv_freq")
#: Starts of the names of tensors that do not affect the outputs.
_UNUSED = ("roberta.pooler.",)


class MaskedImporter(Importer):
    """Reads a folder of a class of transformers.

    Args:
        source: the class.
    """

    def __init__(self, source: MaskedClass) -> None:
        self.source = source

    def read(self, path: str, vocab: Optional[str]) -> Imported:
        """See :class:`~fairseq_posenc.exchange.formats.Importer`."""
        source, folder = self.source, hf.open_folder(path, self.source.model_type)
        config, theirs = folder.config, source.names
        name = config.architecture(list(source.architectures))
        built = source.architectures[name]
        settings = source.settings(config, built)
        vocabulary = dictionary_vocabulary(path, vocab) or read_vocabulary(path, vocab)
        _check_symbols(vocabulary, config, bool(theirs.table))
        folder = folder._replace(parameters=hf.with_prefix(folder.parameters, theirs.embedding))
        rows, width = (theirs.embedding, theirs.output, *source.lm_bias), "hidden_size"
        folder, notes = agreed(folder, vocabulary, rows, width)
        reader = Reader(folder.weights, folder.parameters, vocabulary)
        _move(reader, source, built, settings, config)
        if built.language_model:
            settings["untie_weights_roberta"] = _move_output(reader, source, folder)
        notes += [f"left out {n}, which does not affect the outputs" for n in reader.drop(*_UNUSED)]
        for computed in [n for n in reader.rest if n.endswith(_COMPUTED)]:
            del reader.rest[computed]
        reader.finish(f"config.json ({name})")
        settings["load_checkpoint_heads"] = built.head is not None
        labels: List[str] = []
        if built.head is not None:
            notes.append(f"the language-model head is untrained, since {folder.path} has none")
            notes.append(config.classes_note(built.head))
            labels = read_labels(config)
        foreign = source.reference(path, name, built, vocabulary.order)
        return Imported(
            settings,
            reader.parameters,
            reader.origin,
            vocabulary,
            foreign,
            built.head,
            notes,
            labels=labels,
        )


def _check_symbols(vocabulary: Vocabulary, config: Config, counted: bool) -> None:
    """Refuse a vocabulary without a special symbol, or with another padding than the model's.

    Args:
        counted: whether positions begin behind the number of the padding symbol.
    """
    if vocabulary.missing or MASK not in vocabulary.names:
        raise UsageError(
            f"{vocabulary.source}: a masked language model has cls_token, sep_token and mask_token "
            "in tokenizer_config.json, and they are missing"
        )
    padding = int(vocabulary.order[PAD])
    if counted and padding_of(config) != padding:
        raise UsageError(
            f"{config.path}: pad_token_id is {padding_of(config)}, but {vocabulary.source} has "
            f"{vocabulary.names['<pad>']} as number {padding}; positions are counted from it"
        )


def _move(
    reader: Reader, source: MaskedClass, built: Architecture, settings: Settings, config: Config
) -> None:
    """Move all parameters but those of the output layer."""
    theirs, norms = source.names, (NORM_1, NORM_2)
    layers, heads = settings["encoder_layers"], settings["encoder_attention_heads"]
    unbiased, absent = bool(settings.get("no_bias")), source.absent(settings)

    def theirs_biased(module: str) -> bool:
        return theirs.biased(module, config)

    def ours_biased(module: str) -> bool:
        return module in norms or not unbiased

    reader.move_rows(theirs.embedding, EMBEDDING)
    joints.read_layers(reader, theirs, ENCODER, layers, heads, theirs_biased, ours_biased, absent)
    modules = {**{ENCODER + mine: name for mine, name in theirs.norms.items()}, **built.modules}
    for mine, name in modules.items():
        reader.move(f"{name}.weight", f"{mine}.weight")
        if theirs_biased(name):
            reader.move(f"{name}.bias", f"{mine}.bias")
        elif not (unbiased and mine == LM_HEAD + "dense"):  # --no-bias leaves its bias out
            rows = len(reader.parameters[f"{mine}.weight"])
            reader.put(f"{mine}.bias", torch.zeros(rows), f"{name}.bias")
    if theirs.table:
        table = joints.positions(
            reader, theirs.table, padding_of(config) + 1, settings["max_positions"]
        )
        if source.segments and not settings["num_segments"]:  # one for all tokens
            segment = reader.take(source.segments)
            if segment.shape != (1, table.size(1)):
                raise UsageError(
                    f"{reader.path}: {source.segments} has size {size_of(segment)}, but "
                    f"type_vocab_size 1 requires 1 x {table.size(1)}"
                )
            table = table + segment
        joints.put_positions(reader, table, TABLE, theirs.table)
    if source.segments and settings["num_segments"]:
        reader.move(source.segments, SEGMENTS)


def _move_output(reader: Reader, source: MaskedClass, folder: hf.Folder) -> bool:
    """Move weight and bias of the output layer; returns whether it is not the embedding."""
    theirs, config = source.names, folder.config
    output, (bias, *others) = theirs.output, source.lm_bias
    pairs = [(output, theirs.embedding), *((other, bias) for other in others)]
    own = has_own_output(folder, config.flag("tie_word_embeddings", True), *pairs)
    for other in others if own else ():
        bias = other if other in reader else bias
    if theirs.biased(bias, config):
        reader.move_rows(bias, LM_HEAD + "bias")
        reader.drop(*source.lm_bias)
    else:
        symbols = len(reader.vocabulary.order)
        reader.put(LM_HEAD + "bias", torch.zeros(symbols), bias)
    if own:
        reader.move_rows(output, LM_HEAD + "weight")
    reader.drop(output)
    return own


for _name, _class in CLASSES.items():
    register_format(
        _name,
        summary=f"a folder of transformers' {_class.prefix} classes",
        importer=MaskedImporter(_class),
        exporter=MaskedExporter(_class),
    )
