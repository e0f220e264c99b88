"""Writing a RoFormer of this plug-in as transformers' classes expect it.

Interleaved pairs (RoFormer Eq. 26) rotate channels (1, 2), (3, 4), …; half pairs (i, i + D/2).
Permuting the rows of both projections alike leaves all products of queries and keys unchanged.
"""

from typing import Any, Dict, Optional, Tuple

import torch
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.exchange.expressible import Expressible, refuse_inexpressible
from fairseq_posenc.exchange.formats import ForeignModel, register_format
from fairseq_posenc.exchange.hf_config import Config
from fairseq_posenc.exchange.huggingface import (
    DECODER,
    segment_embedding_of,
    token_embedding_of,
    write_folder,
)
from fairseq_posenc.exchange.kinds import (
    CAUSAL,
    EMBEDDING,
    ENCODER,
    FOLLOWING,
    HEADS,
    LM_HEAD,
    MASKED,
    SEGMENTS,
    TOKEN_HEADS,
    Parameters,
    language_model_settings,
    masked_settings,
    renamed,
)
from fairseq_posenc.exchange.native import NativeCheckpoint
from fairseq_posenc.exchange.reader import ForeignParameters
from fairseq_posenc.exchange.roformer import (
    ADAPTED,
    RoFormerImporter,
    entries_for,
    settings_of,
)
from fairseq_posenc.exchange.roformer_names import (
    ARCHITECTURES,
    BASE,
    LM_BIAS,
    TABLE,
    Architecture,
    classifier,
    names_of,
    reference_for,
    sine_table,
    table_note,
    token_classifier,
)
from fairseq_posenc.exchange.transfer import CheckpointExporter, Exported
from fairseq_posenc.exchange.vocabulary import vocabulary_order


class RoFormerExporter(CheckpointExporter):
    """Writes a folder that the stock classes load."""

    def write(self, checkpoint: NativeCheckpoint, head: Optional[str], folder: str) -> Exported:
        """See :class:`~fairseq_posenc.exchange.transfer.CheckpointExporter`."""
        original, checkpoint = checkpoint, _as_masked(checkpoint)
        name, architecture = _choose(checkpoint, head)
        entries = entries_for(checkpoint.settings, checkpoint.path)
        _check_settings(original, checkpoint, entries, name, architecture)
        symbols, order = vocabulary_order(checkpoint.symbols, checkpoint.dictionary)
        state = _foreign_parameters(checkpoint, name, architecture, order)
        entries["architectures"] = [name]
        entries["tie_word_embeddings"] = DECODER + "weight" not in state
        if head is not None:
            last = "classifier.out_proj.weight"
            classes = len(state[last if last in state else "classifier.weight"])
            entries["id2label"] = {str(number): f"LABEL_{number}" for number in range(classes)}
            entries["label2id"] = {f"LABEL_{number}": number for number in range(classes)}
        write_folder(folder, entries, state, symbols)
        inverse = torch.empty_like(order)
        inverse[order] = torch.arange(len(order))
        foreign = ForeignModel(
            reference_for(folder, name, inverse),
            f"{name} of transformers{table_note(state)}",
        )
        note = "vocab.txt lists the dictionary; text must be tokenised as it was for training"
        return Exported(foreign, (note,))


def _as_masked(checkpoint: NativeCheckpoint) -> NativeCheckpoint:
    """A language model as a causal masked one; a masked one as it is."""
    if checkpoint.kind is MASKED:
        return checkpoint
    parameters = renamed(checkpoint.parameters, CAUSAL, MASKED)
    settings = masked_settings(checkpoint.settings)
    return checkpoint._replace(settings=settings, parameters=parameters, kind=MASKED)


def _choose(checkpoint: NativeCheckpoint, head: Optional[str]) -> Tuple[str, Architecture]:
    """The class for *head*, and its modules on top of the encoder."""
    if head is None:
        name = "RoFormerForCausalLM" if checkpoint.settings["causal"] else "RoFormerForMaskedLM"
        return name, ARCHITECTURES[name]
    if head in checkpoint.heads(TOKEN_HEADS):
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
    returned = settings_of(Config(checkpoint.path, entries))
    returned["untie_weights_roberta"] = settings["untie_weights_roberta"]  # tie_word_embeddings
    returned["pooler_activation_fn"] = settings["activation_fn"]  # both are their hidden_act
    adapted = (*ADAPTED, *architecture.unused)
    if original.kind is CAUSAL:
        returned, adapted = language_model_settings(returned), (*adapted, *FOLLOWING)
    expressible = Expressible(
        f"{name} of transformers", adapted, {key: (value,) for key, value in returned.items()}
    )
    refuse_inexpressible(original.path, original.kind.family, original.settings, expressible)


def _foreign_parameters(
    checkpoint: NativeCheckpoint, name: str, architecture: Architecture, order: torch.Tensor
) -> ForeignParameters:
    """The parameters by transformers' names.

    Args:
        checkpoint: the checkpoint.
        name: the class in transformers.
        architecture: its modules on top of the encoder.
        order: fairseq's number of each symbol of the new vocabulary, (V,).

    Raises:
        UsageError: the class lacks one of them.
    """
    settings, ours = checkpoint.settings, _interleaved(checkpoint)
    projected = settings["encoder_input_dim"] != settings["encoder_embed_dim"]
    names = names_of(settings["encoder_layers"], projected, architecture)
    missing = [mine for mine in names if mine not in ours]
    if missing:
        raise UsageError(f"{checkpoint.path}: has no parameter {missing[0]}, which {name} requires")
    state = {theirs: ours.pop(mine) for mine, theirs in names.items()}
    embedding = ours.pop(EMBEDDING)
    state[token_embedding_of(BASE)] = embedding[order]
    state[segment_embedding_of(BASE)] = ours.pop(
        SEGMENTS, embedding.new_zeros(2, embedding.size(1))
    )
    head_dim = settings["encoder_embed_dim"] // settings["encoder_attention_heads"]
    state[TABLE] = sine_table(settings["max_positions"], head_dim)
    if architecture.language_model:
        bias = ours.pop(LM_HEAD + "bias")[order]
        state[LM_BIAS] = bias
        if settings["untie_weights_roberta"]:
            state[DECODER + "weight"] = ours[LM_HEAD + "weight"][order]
            state[DECODER + "bias"] = bias.clone()
    left = [key for key in ours if not key.startswith(HEADS)]
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


register_format(
    "hf-roformer",
    summary="a folder of transformers' RoFormer classes",
    importer=RoFormerImporter(),
    exporter=RoFormerExporter(),
)
