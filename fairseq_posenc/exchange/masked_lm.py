"""Masked language models and classifiers as native classes of transformers: both ways.

Written symbols keep the numbers of dict.txt, or have those of the tokenizer that is given.  A
learned position is a row of a table that begins behind the number of the padding symbol, in
transformers' RoBERTa as in fairseq.
"""

from typing import Any, Dict, List, Optional, Tuple

import torch
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.exchange import huggingface as hf
from fairseq_posenc.exchange import joints
from fairseq_posenc.exchange.causal_names import NORM_1, NORM_2
from fairseq_posenc.exchange.encoder_heads import Architecture, label_entries, read_labels
from fairseq_posenc.exchange.encoder_tokenizer import written_tokenizer
from fairseq_posenc.exchange.formats import (
    ForeignModel,
    Imported,
    Importer,
    refuse_inexpressible,
    register_format,
)
from fairseq_posenc.exchange.kinds import (
    EMBEDDING,
    ENCODER,
    HEADS,
    LM_HEAD,
    MASKED,
    PAD,
    SEGMENTS,
    TOKEN_HEADS,
    Settings,
)
from fairseq_posenc.exchange.masked_classes import CLASSES, MaskedClass, padding_of
from fairseq_posenc.exchange.native import NativeCheckpoint
from fairseq_posenc.exchange.reader import (
    MASK,
    Config,
    ForeignParameters,
    Reader,
    Vocabulary,
    read_vocabulary,
)
from fairseq_posenc.exchange.transfer import CheckpointExporter, Exported

_TABLE = ENCODER + "embed_positions.weight"
#: Ends of the names of tensors that the classes compute themselves.
_COMPUTED = (".position_ids", ".rotary_emb.inv_freq")
#: Starts of the names of tensors that do not affect the outputs.
_UNUSED = ("roberta.pooler.",)


class MaskedExporter(CheckpointExporter):
    """Writes a folder that a class of transformers loads.

    Args:
        target: the class.
    """

    flags = ("vocab", "head", "data", "tokenizer")

    def __init__(self, target: MaskedClass) -> None:
        self.target = target

    def write(self, checkpoint: NativeCheckpoint, head: Optional[str], folder: str) -> Exported:
        """See :class:`~fairseq_posenc.exchange.transfer.CheckpointExporter`."""
        target, settings, path = self.target, checkpoint.settings, checkpoint.path
        if checkpoint.kind is not MASKED:
            raise UsageError(
                f"{path}: {target.prefix}ForMaskedLM is for models of --arch {MASKED.arch}, and "
                f"this is one of --arch {checkpoint.kind.arch}"
            )
        name, built = _choose(target, checkpoint, head)
        expressible = target.expressible(name, settings, built)
        refuse_inexpressible(path, MASKED.family, settings, expressible)
        tokenizer = written_tokenizer(checkpoint, target.inputs, folder)
        order, padding = tokenizer.order, int(tokenizer.number_of(PAD))
        state = foreign_parameters(checkpoint, target, built, order, padding)
        entries = {
            "model_type": target.model_type,
            "architectures": [name],
            **target.entries(settings, built, path),
            "tie_word_embeddings": target.names.output not in state,
            "vocab_size": len(order),
            **tokenizer.entries(),
            "torch_dtype": "float32",
        }
        if target.names.table:
            entries["max_position_embeddings"] = len(state[target.names.table])
        if built.head is not None:
            last = next(ours for ours in built.modules if ours.endswith(("out_proj", built.head)))
            classes = len(state[f"{built.modules[last]}.weight"])
            entries.update(label_entries(checkpoint, built.head, classes))
        hf.write_weights(folder, entries, state)
        inverse = torch.empty_like(order)
        inverse[order] = torch.arange(len(order))
        foreign = _reference(folder, target, name, built, inverse)
        return Exported(foreign, (tokenizer.note,))


def _choose(
    target: MaskedClass, checkpoint: NativeCheckpoint, head: Optional[str]
) -> Tuple[str, Architecture]:
    """The class for *head*, and its modules on top of the encoder."""
    if head is None:
        return f"{target.prefix}ForMaskedLM", target.language_model
    if head in checkpoint.heads(TOKEN_HEADS):
        return f"{target.prefix}ForTokenClassification", target.token_classifier(head)
    return f"{target.prefix}ForSequenceClassification", target.classifier(head)


def foreign_parameters(
    checkpoint: NativeCheckpoint,
    target: MaskedClass,
    built: Architecture,
    order: Tensor,
    padding: int,
) -> ForeignParameters:
    """The parameters of a model by their names in a class.

    Args:
        built: what is on top of the encoder.
        order: our number of each symbol of the class, (V,).
        padding: the number of the padding symbol there.

    Raises:
        UsageError: one side lacks a parameter of the other.
    """
    settings, theirs = checkpoint.settings, target.names
    ours = target.adapted(dict(checkpoint.parameters), settings)
    layers, heads = settings["encoder_layers"], settings["encoder_attention_heads"]
    state, lacking = joints.write_layers(ours, theirs, ENCODER, layers, heads)
    modules = {**{ENCODER + mine: name for mine, name in theirs.norms.items()}, **built.modules}
    for mine, name in modules.items():
        for part in joints.PARTS:
            x = ours.pop(f"{mine}.{part}", None)
            if x is not None:
                state[f"{name}.{part}"] = x
            elif part == "weight":
                lacking.append(f"{name}.weight")
    lacking = [name for name in lacking if name not in target.absent(settings)]
    if lacking:
        raise UsageError(
            f"{checkpoint.path}: has no counterpart of {lacking[0]}, which {target.prefix} of "
            "transformers requires"
        )
    embedding = ours.pop(EMBEDDING)
    state[theirs.embedding] = embedding[order]
    if theirs.table:
        table = ours.pop(_TABLE)[PAD + 1 :]
        state[theirs.table] = torch.cat((table.new_zeros(padding + 1, table.size(1)), table))
    if target.segments:
        state[target.segments] = ours.pop(SEGMENTS, embedding.new_zeros(1, embedding.size(1)))
    if built.language_model:
        bias, *untied = target.lm_bias
        state[bias] = ours.pop(LM_HEAD + "bias")[order]
        if settings["untie_weights_roberta"]:
            state[theirs.output] = ours[LM_HEAD + "weight"][order]
            state.update({name: state[bias].clone() for name in untied})
    left = [name for name in ours if not name.startswith(HEADS)]
    if left:
        raise UsageError(
            f"{checkpoint.path}: {target.prefix} of transformers has no counterpart of {left[0]}"
        )
    return target.completed(state)


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
        config = folder.config
        name = config.architecture(list(source.architectures))
        built = source.architectures[name]
        settings = source.settings(config, built)
        hf.check_sizes(folder)
        vocabulary = read_vocabulary(path, vocab)
        _check_symbols(vocabulary, config, bool(source.names.table))
        parameters = hf.with_prefix(folder.parameters, source.names.embedding)
        rows = (source.names.embedding, source.names.output, *source.lm_bias)
        notes = joints.leave_out_rows(parameters, rows, len(vocabulary.order))
        reader = Reader(folder.weights, parameters, vocabulary)
        _move(reader, source, built, settings, config)
        if built.language_model:
            folder = folder._replace(parameters=parameters)
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
        foreign = _reference(path, source, name, built, vocabulary.order)
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
    reader.move_rows(theirs.embedding, EMBEDDING)
    joints.read_layers(
        reader, theirs, ENCODER, layers, heads, lambda m: m in norms or not unbiased, absent
    )
    modules = {**{ENCODER + mine: name for mine, name in theirs.norms.items()}, **built.modules}
    for mine, name in modules.items():
        reader.move(f"{name}.weight", f"{mine}.weight")
        if f"{name}.bias" in reader:
            reader.move(f"{name}.bias", f"{mine}.bias")
        elif not (unbiased and mine == LM_HEAD + "dense"):  # --no-bias leaves its bias out
            rows = len(reader.parameters[f"{mine}.weight"])
            reader.put(f"{mine}.bias", torch.zeros(rows), f"{name}.bias")
    if theirs.table:
        table = reader.take(theirs.table)[padding_of(config) + 1 :]
        if source.segments and not settings["num_segments"]:  # one for all tokens
            table = table + reader.take(source.segments)
        front = table.new_zeros(PAD + 1, table.size(1))
        reader.put(_TABLE, torch.cat((front, table)), theirs.table)
    if source.segments and settings["num_segments"]:
        reader.move(source.segments, SEGMENTS)


def _move_output(reader: Reader, source: MaskedClass, folder: hf.Folder) -> bool:
    """Move weight and bias of the output layer; returns whether it is not the embedding."""
    output, (bias, *others) = source.names.output, source.lm_bias
    pairs = [(output, source.names.embedding), *((other, bias) for other in others)]
    own = hf.has_own_output(folder, *pairs)
    for other in others if own else ():
        bias = other if other in reader else bias
    if bias in reader or source.lm_biased(folder.config):
        reader.move_rows(bias, LM_HEAD + "bias")
    else:
        symbols = len(reader.vocabulary.order)
        reader.put(LM_HEAD + "bias", torch.zeros(symbols), bias)
    if own:
        reader.move_rows(output, LM_HEAD + "weight")
    reader.drop(output, *source.lm_bias)
    return own


def _reference(
    path: str, source: MaskedClass, name: str, built: Architecture, order: Tensor
) -> ForeignModel:
    """The logits of a folder, computed by transformers.

    Args:
        order: transformers' number of each symbol of fairseq's dictionary, (V,).
    """

    def logits(tokens: Tensor, segments: Tensor) -> Tensor:
        model: Any = hf.load_model(path, name)
        inputs: Dict[str, Tensor] = {}
        if "token_type_ids" in source.inputs:
            inputs["token_type_ids"] = segments
        with torch.no_grad():
            mask = tokens.ne(PAD).long()
            out = model(input_ids=order[tokens], attention_mask=mask, **inputs).logits
        return out[..., order] if built.language_model else out

    return ForeignModel(logits, f"{name} of transformers")


for _name, _class in CLASSES.items():
    register_format(
        _name,
        summary=f"a folder of transformers' {_class.prefix} classes",
        importer=MaskedImporter(_class),
        exporter=MaskedExporter(_class),
    )
