"""RoFormer as ``transformers`` saves it, read and written, and RoFormerV2 as released, read.

Masked and causal language models and sequence and token classifiers can be imported, including
those with ``rotary_value`` or an ``embedding_size`` other than ``hidden_size``.  Models with
``--position-encoding rotary`` that the stock classes can express can be exported.

Their pairs of channels are interleaved, which is the default here; ``half`` is reordered on export:
interleaved pairs (RoFormer Eq. 26) rotate channels (1, 2), (3, 4), …; half pairs (i, i + D/2); and
permuting the rows of both projections alike leaves all products of queries and keys unchanged.
The saved sine table is checked and left out, since it is computed here.  Token types become
segments.  A sequence classifier applies ``hidden_act``, for which fairseq has a separate flag,
``--pooler-activation-fn``.
"""

import dataclasses
from typing import Any, Dict, Optional, Tuple

import torch
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.exchange import released_formulas as formulas
from fairseq_posenc.exchange.config import Config
from fairseq_posenc.exchange.formats import (
    Expressible,
    ForeignModel,
    Imported,
    Importer,
    refuse_inexpressible,
    register_format,
)
from fairseq_posenc.exchange.huggingface import folder as hf
from fairseq_posenc.exchange.huggingface import roformer_names as names
from fairseq_posenc.exchange.huggingface.agreement import agreed, has_own_output, move_output
from fairseq_posenc.exchange.huggingface.card import CARD_FLAGS
from fairseq_posenc.exchange.huggingface.encoder_heads import (
    Architecture,
    classifier,
    label_entries,
    read_labels,
    token_classifier,
)
from fairseq_posenc.exchange.huggingface.tokenizers.symbols import MASK_NOTE
from fairseq_posenc.exchange.native import VOCAB, NativeCheckpoint
from fairseq_posenc.exchange.reader import ForeignParameters, read_vocabulary, vocabulary_order
from fairseq_posenc.exchange.source import DATA
from fairseq_posenc.exchange.transfer import HEAD, CheckpointExporter, Exported
from fairseq_posenc.models import kinds, presets
from fairseq_posenc.models.kinds import CAUSAL, ENCODER, LM_HEAD, MASKED, Parameters


class RoFormerImporter(Importer):
    """Reads a folder of transformers' RoFormer classes."""

    def read(self, path: str, vocab: Optional[str]) -> Imported:
        """See :class:`~fairseq_posenc.exchange.formats.Importer`."""
        folder = names.open_roformer(path, "hf-roformer")
        vocabulary = read_vocabulary(path, vocab)
        config = folder.config
        name = config.architecture(list(names.ARCHITECTURES))
        architecture = names.ARCHITECTURES[name]
        settings = names.settings_of(config)
        settings["pooler_activation_fn"] = settings["activation_fn"]

        folder, rows = agreed(folder, vocabulary, names.ROWS, "embedding_size")
        reader = hf.reader_of(folder, vocabulary, names.BASE)
        projected = settings["encoder_input_dim"] != settings["encoder_embed_dim"]
        moved = names.names_of(settings["encoder_layers"], projected, architecture)
        for ours, theirs in moved.items():
            reader.move(theirs, ours)
        if architecture.language_model:
            bias, own_weight = _output_bias(folder)
            reader.move_rows(bias, LM_HEAD + "bias")
            if own_weight:
                reader.move_rows(hf.DECODER + "weight", LM_HEAD + "weight")
            reader.drop(hf.DECODER, names.LM_BIAS)
            settings["untie_weights_roberta"] = own_weight
        notes = rows + names.drop_unused(reader, config)
        reader.finish(f"config.json ({name})")
        settings["load_checkpoint_heads"] = architecture.head is not None
        if architecture.head is not None:
            notes.append(f"the language-model head is untrained, since {folder.path} has none")
            notes.append(config.classes_note(architecture.head))
        description = f"{name} of transformers{names.table_note(folder.parameters)}"
        foreign = ForeignModel(names.reference_for(path, name, vocabulary.order), description)
        imported = Imported(
            settings,
            reader.parameters,
            reader.origin,
            vocabulary,
            foreign,
            architecture.head,
            notes,
            labels=[] if architecture.head is None else read_labels(config),
        )
        if name != "RoFormerForCausalLM":
            return imported
        if settings["causal"] and not projected:
            return _as_language_model(imported)
        reason = "is_decoder is false"
        if settings["causal"]:
            reason = "embedding_size is not hidden_size"
        notes.append(f"becomes a masked language model, not a language model, since {reason}")
        return imported


def _as_language_model(imported: Imported) -> Imported:
    """The language model that a causal masked one is."""
    return dataclasses.replace(
        imported,
        settings=kinds.language_model_settings(imported.settings),
        parameters=kinds.renamed(imported.parameters, MASKED, CAUSAL),
        origin=kinds.renamed(imported.origin, MASKED, CAUSAL),
        kind=CAUSAL,
    )


def _output_bias(folder: hf.Folder) -> Tuple[str, bool]:
    """Name of the output bias, and whether the output weight is untied."""
    own = has_own_output(
        folder,
        folder.config.flag("tie_word_embeddings", True),
        (hf.DECODER + "weight", names.BASE + hf.TOKENS),
        (hf.DECODER + "bias", names.LM_BIAS),
    )
    bias = (
        hf.DECODER + "bias" if own and hf.DECODER + "bias" in folder.parameters else names.LM_BIAS
    )
    return bias, own


class RoFormerExporter(CheckpointExporter):
    """Writes a folder that the stock classes load."""

    flags = (VOCAB, HEAD, DATA, *CARD_FLAGS)

    def write(self, checkpoint: NativeCheckpoint, head: Optional[str], folder: str) -> Exported:
        """See :class:`~fairseq_posenc.exchange.transfer.CheckpointExporter`."""
        original, checkpoint = checkpoint, _as_masked(checkpoint)
        name, architecture = _choose(checkpoint, head)
        entries = names.entries_for(checkpoint.settings, checkpoint.path)
        _check_settings(original, checkpoint, entries, name, architecture)
        symbols, order = vocabulary_order(checkpoint.symbols, checkpoint.dictionary)
        state = _foreign_parameters(checkpoint, name, architecture, order)
        entries["architectures"] = [name]
        entries["tie_word_embeddings"] = hf.DECODER + "weight" not in state
        if head is not None:
            last = "classifier.out_proj.weight"
            classes = len(state[last if last in state else "classifier.weight"])
            entries.update(label_entries(checkpoint, head, classes))
        hf.write_folder(folder, entries, state, symbols)
        inverse = torch.empty_like(order)
        inverse[order] = torch.arange(len(order))
        foreign = ForeignModel(
            names.reference_for(folder, name, inverse),
            f"{name} of transformers{names.table_note(state)}",
        )
        note = "vocab.txt lists the dictionary; text must be tokenised as it was for training"
        return Exported(foreign, (note, MASK_NOTE) if name.endswith("MaskedLM") else (note,))


def _as_masked(checkpoint: NativeCheckpoint) -> NativeCheckpoint:
    """A language model as a causal masked one; a masked one as it is."""
    if checkpoint.kind is MASKED:
        return checkpoint
    parameters = kinds.renamed(checkpoint.parameters, CAUSAL, MASKED)
    settings = kinds.masked_settings(checkpoint.settings)
    return checkpoint._replace(settings=settings, parameters=parameters, kind=MASKED)


def _choose(checkpoint: NativeCheckpoint, head: Optional[str]) -> Tuple[str, Architecture]:
    """The class for *head*, and its modules on top of the encoder."""
    if head is None:
        name = "RoFormerForCausalLM" if checkpoint.settings["causal"] else "RoFormerForMaskedLM"
        return name, names.ARCHITECTURES[name]
    if head in checkpoint.heads(kinds.TOKEN_HEADS):
        name, architecture = "RoFormerForTokenClassification", token_classifier(head)
    else:
        name, architecture = "RoFormerForSequenceClassification", classifier(head)
    return name, architecture


def _check_settings(
    original: NativeCheckpoint,
    checkpoint: NativeCheckpoint,
    entries: Dict[str, Any],
    name: str,
    architecture: Architecture,
) -> None:
    """Refuse settings that importing the written folder would not restore."""
    settings = checkpoint.settings
    returned = names.settings_of(Config(checkpoint.path, entries))
    returned["untie_weights_roberta"] = settings["untie_weights_roberta"]  # tie_word_embeddings
    returned["pooler_activation_fn"] = settings["activation_fn"]  # both are their hidden_act
    adapted = (*names.ADAPTED, *architecture.unused)
    if original.kind is CAUSAL:
        returned, adapted = kinds.language_model_settings(returned), (*adapted, *kinds.FOLLOWING)
    expressible = Expressible(
        f"{name} of transformers", adapted, {key: (value,) for key, value in returned.items()}
    )
    refuse_inexpressible(original.path, original.kind.family, original.settings, expressible)


def _foreign_parameters(
    checkpoint: NativeCheckpoint, name: str, architecture: Architecture, order: torch.Tensor
) -> ForeignParameters:
    """The parameters by transformers' names.

    Args:
        name: the class in transformers.
        architecture: its modules on top of the encoder.
        order: fairseq's number of each symbol of the new vocabulary, (V,).

    Raises:
        UsageError: the class lacks one of them.
    """
    settings, ours = checkpoint.settings, _interleaved(checkpoint)
    projected = settings["encoder_input_dim"] != settings["encoder_embed_dim"]
    moved = names.names_of(settings["encoder_layers"], projected, architecture)
    missing = [mine for mine in moved if mine not in ours]
    if missing:
        raise UsageError(f"{checkpoint.path}: has no parameter {missing[0]}, which {name} requires")
    state = {theirs: ours.pop(mine) for mine, theirs in moved.items()}
    embedding = ours.pop(kinds.EMBEDDING)
    state[names.BASE + hf.TOKENS] = embedding[order]
    state[names.BASE + hf.SEGMENT_ROWS] = ours.pop(
        kinds.SEGMENTS, embedding.new_zeros(2, embedding.size(1))
    )
    head_dim = settings["encoder_embed_dim"] // settings["encoder_attention_heads"]
    state[names.TABLE] = names.sine_table(settings["max_positions"], head_dim)
    if architecture.language_model:
        bias = ours.pop(LM_HEAD + "bias")[order]
        state[names.LM_BIAS] = bias
        if settings["untie_weights_roberta"]:
            state[hf.DECODER + "weight"] = ours[LM_HEAD + "weight"][order]
            state[hf.DECODER + "bias"] = bias.clone()
    left = [key for key in ours if not key.startswith(kinds.HEADS)]
    if left:
        raise UsageError(f"{checkpoint.path}: {name} has no counterpart of {left[0]}")
    return state


def _interleaved(checkpoint: NativeCheckpoint) -> Parameters:
    """The parameters, reordered for interleaved pairs of channels."""
    settings, parameters = checkpoint.settings, dict(checkpoint.parameters)
    if settings["rotary_pairing"] == "interleaved":
        return parameters
    heads = settings["encoder_attention_heads"]
    rotated = ["q_proj", "k_proj"] + (["v_proj"] if settings["rotary_value"] else [])
    for layer in range(settings["encoder_layers"]):
        prefix = f"{ENCODER}layers.{layer}.self_attn."
        for key in [f"{prefix}{name}.{kind}" for name in rotated for kind in ("weight", "bias")]:
            parameters[key] = half_to_interleaved(parameters[key], heads)
        if settings[
            "rotary_value"
        ]:  # values are permuted too, and with them the inputs of the output projection
            key = prefix + "out_proj.weight"
            parameters[key] = half_to_interleaved(parameters[key].t(), heads).t()
    return parameters


def half_to_interleaved(rows: Tensor, heads: int) -> Tensor:
    """Reorder the channels of every head so that i and i + D/2 become neighbours.

    Args:
        rows: (H·D, …), the weight or bias of a projection.
        heads: H.
    """
    halves = rows.reshape(heads, 2, -1, *rows.shape[1:])
    return halves.transpose(1, 2).reshape(rows.shape)


class RoFormerV2Importer(Importer):
    """Reads a folder of RoFormerV2's masked language model.

    Its folders also have the model type ``roformer``, with ``norm_type`` rms_norm and ``use_bias``
    false: no biases, norms without parameters, and only the tied embedding as output
    ("Implementation and Experiments for GAU-based Model", Liu, section 4.1).  The classes of
    transformers ignore these entries and so cannot run it.
    """

    def read(self, path: str, vocab: Optional[str]) -> Imported:
        """See :class:`~fairseq_posenc.exchange.formats.Importer`."""
        folder, vocabulary = names.open_roformer(path, "roformer-v2"), read_vocabulary(path, vocab)
        config = folder.config
        # the causal class of RoFormerV2 attends to later tokens unless it is given a mask
        name = config.architecture(["RoFormerForMaskedLM"])
        config.one_of("is_decoder", False, (False,))
        settings = {**presets.ROFORMER_V2, **presets.RELEASED, **names.settings_of(config)}
        channels = settings["encoder_embed_dim"]
        config.one_of("embedding_size", channels, (channels,))

        folder, rows = agreed(folder, vocabulary, names.ROWS, "hidden_size")
        reader = hf.reader_of(folder, vocabulary, names.BASE)
        for layer in range(settings["encoder_layers"]):
            for ours, theirs in names.PROJECTIONS.items():
                reader.move(
                    f"{names.BASE}encoder.layer.{layer}.{theirs}.weight",
                    f"{ENCODER}layers.{layer}.{ours}.weight",
                )
        settings["untie_weights_roberta"] = move_output(folder, reader, names.BASE)
        notes = rows + names.drop_unused(reader, config)
        reader.finish(f"config.json ({name})")
        entries = {**config.entries, "hidden_act": hf.activation_of(config)}
        head = formulas.tied_head(hf.output_weight(folder, names.BASE))
        released = formulas.released_logits(
            formulas.transformer_layer, names.BASE, folder.parameters, entries, head
        )
        foreign = formulas.by_formulas(released, vocabulary.order)
        return Imported(
            settings, reader.parameters, reader.origin, vocabulary, foreign, notes=notes
        )


register_format(
    "hf-roformer",
    summary="a folder of transformers' RoFormer classes",
    importer=RoFormerImporter(),
    exporter=RoFormerExporter(),
)
register_format(
    "roformer-v2",
    summary="a folder of RoFormerV2's masked language model",
    importer=RoFormerV2Importer(),
)
