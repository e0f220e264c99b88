"""RoFormer as ``transformers`` saves it: its settings, and reading it.

Masked and causal language models and sequence and token classifiers can be imported, including
those with ``rotary_value`` or an ``embedding_size`` other than ``hidden_size``.  Models with
``--position-encoding rotary`` that the stock classes can express can be exported.

Their pairs of channels are interleaved, which is the default here; ``half`` is reordered on export.
The saved sine table is checked and left out, since it is computed here.  Token types become
segments.  A sequence classifier applies ``hidden_act``, for which fairseq has a separate flag,
``--pooler-activation-fn``.
"""

import dataclasses
from typing import Any, Callable, Dict, NamedTuple, Optional, Tuple

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.exchange.formats import ForeignModel, Imported, Importer
from fairseq_posenc.exchange.hf_config import Config
from fairseq_posenc.exchange.huggingface import (
    DECODER,
    Folder,
    activation_for,
    activation_of,
    has_own_output,
    reader_of,
    token_embedding_of,
)
from fairseq_posenc.exchange.kinds import (
    CAUSAL,
    LM_HEAD,
    MASKED,
    Settings,
    language_model_settings,
    renamed,
)
from fairseq_posenc.exchange.roformer_names import (
    ARCHITECTURES,
    BASE,
    LM_BIAS,
    drop_unused,
    names_of,
    open_roformer,
    reference_for,
    table_note,
)
from fairseq_posenc.exchange.vocabulary import read_vocabulary

#: Settings common to all RoFormers.
_ALWAYS: Settings = {
    "position_encoding": "rotary",
    "encoder_normalize_before": False,
    "layernorm_embedding": True,
    "activation_dropout": 0.0,
}

#: Sizes required in config.json: fairseq's name and transformers' name.
_SIZES = {
    "encoder_layers": "num_hidden_layers",
    "encoder_embed_dim": "hidden_size",
    "encoder_ffn_embed_dim": "intermediate_size",
    "encoder_attention_heads": "num_attention_heads",
}


class _Entry(NamedTuple):
    """A setting, its key in config.json, its value if the key is absent, and what reads it."""

    setting: str
    key: str
    default: object
    read: Callable[..., object]


_ENTRIES = (
    _Entry("layer_norm_eps", "layer_norm_eps", 1e-12, Config.fraction),
    _Entry("dropout", "hidden_dropout_prob", 0.1, Config.fraction),
    _Entry("attention_dropout", "attention_probs_dropout_prob", 0.1, Config.fraction),
    _Entry("max_positions", "max_position_embeddings", 1536, Config.size),
    _Entry("num_segments", "type_vocab_size", 2, Config.size),
    _Entry("rotary_value", "rotary_value", False, Config.flag),
    _Entry("causal", "is_decoder", False, Config.flag),
)

#: Settings that may change on export without changing the model's outputs: pairs of channels are
#: reordered; a model without segments gets two with zero embeddings; activations have several names
#: (:func:`activation_for` refuses those without a counterpart); a rotary model has no position
#: table; factor and length only matter with ``--rotary-scaling``, which is compared; and callers of
#: transformers give the segments.
ADAPTED: Tuple[str, ...] = (
    "rotary_pairing",
    "num_segments",
    "segments",
    "activation_fn",
    "num_positions",
    "rotary_scaling_factor",
    "rotary_original_length",
)


def settings_of(config: Config) -> Settings:
    """The flags of the encoder in a folder.

    Raises:
        UsageError: a number is missing, or an entry has a value that cannot be imported.
    """
    settings = {
        **_ALWAYS,
        **{name: config.size(key) for name, key in _SIZES.items()},
        **{entry.setting: entry.read(config, entry.key, entry.default) for entry in _ENTRIES},
        "activation_fn": activation_of(config),
    }
    if config.flag("add_cross_attention", False):
        raise UsageError(
            f"{config.path}: add_cross_attention is true: parts of encoder-decoder models "
            "cannot be imported"
        )
    channels = settings["encoder_embed_dim"]
    settings["encoder_input_dim"] = config.size("embedding_size", channels)
    settings["pooler_dropout"] = settings["dropout"]
    return settings


def entries_for(settings: Settings, source: str) -> Dict[str, Any]:
    """The entries of config.json for an encoder.

    Args:
        settings: complete settings.
        source: the checkpoint, for messages.

    Raises:
        UsageError: transformers has no such activation.
    """
    return {
        "model_type": "roformer",
        **{key: settings[name] for name, key in _SIZES.items()},
        **{entry.key: settings[entry.setting] for entry in _ENTRIES},
        "type_vocab_size": settings["num_segments"] or 2,
        "embedding_size": settings["encoder_input_dim"],
        "hidden_act": activation_for(settings["activation_fn"], source),
        "initializer_range": 0.02,
        "torch_dtype": "float32",
    }


class RoFormerImporter(Importer):
    """Reads a folder of transformers' RoFormer classes."""

    def read(self, path: str, vocab: Optional[str]) -> Imported:
        """See :class:`~fairseq_posenc.exchange.formats.Importer`."""
        folder = open_roformer(path, "hf-roformer")
        vocabulary = read_vocabulary(path, vocab)
        config = folder.config
        name = config.architecture(list(ARCHITECTURES))
        architecture = ARCHITECTURES[name]
        settings = settings_of(config)
        settings["pooler_activation_fn"] = settings["activation_fn"]

        reader = reader_of(folder, vocabulary, BASE)
        projected = settings["encoder_input_dim"] != settings["encoder_embed_dim"]
        for ours, theirs in names_of(settings["encoder_layers"], projected, architecture).items():
            reader.move(theirs, ours)
        if architecture.language_model:
            bias, own_weight = _output_bias(folder)
            reader.move_rows(bias, LM_HEAD + "bias")
            if own_weight:
                reader.move_rows(DECODER + "weight", LM_HEAD + "weight")
            reader.drop(DECODER, LM_BIAS)
            settings["untie_weights_roberta"] = own_weight
        notes = drop_unused(reader, config)
        reader.finish(f"config.json ({name})")
        settings["load_checkpoint_heads"] = architecture.head is not None
        if architecture.head is not None:
            notes.append(f"the language-model head is untrained, since {folder.path} has none")
            notes.append(config.classes_note(architecture.head))
        description = f"{name} of transformers{table_note(folder.parameters)}"
        foreign = ForeignModel(reference_for(path, name, vocabulary.order), description)
        imported = Imported(
            settings,
            reader.parameters,
            reader.origin,
            vocabulary,
            foreign,
            architecture.head,
            notes,
        )
        if name != "RoFormerForCausalLM":
            return imported
        if settings["causal"] and not projected:
            return _as_language_model(imported)
        reason = (
            "embedding_size is not hidden_size" if settings["causal"] else "is_decoder is false"
        )
        notes.append(f"becomes a masked language model, not a language model, since {reason}")
        return imported


def _as_language_model(imported: Imported) -> Imported:
    """The language model that a causal masked one is."""
    return dataclasses.replace(
        imported,
        settings=language_model_settings(imported.settings),
        parameters=renamed(imported.parameters, MASKED, CAUSAL),
        origin=renamed(imported.origin, MASKED, CAUSAL),
        kind=CAUSAL,
    )


def _output_bias(folder: Folder) -> Tuple[str, bool]:
    """Name of the output bias, and whether the output weight is untied."""
    own = has_own_output(
        folder, (DECODER + "weight", token_embedding_of(BASE)), (DECODER + "bias", LM_BIAS)
    )
    bias = DECODER + "bias" if own and DECODER + "bias" in folder.parameters else LM_BIAS
    return bias, own and DECODER + "weight" in folder.parameters
