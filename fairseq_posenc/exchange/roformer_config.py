"""Conversion between settings of a RoFormer and entries of config.json."""

from typing import Any, Callable, Dict, NamedTuple, Tuple

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.exchange.hf_config import Config
from fairseq_posenc.exchange.huggingface import activation_for, activation_of
from fairseq_posenc.exchange.kinds import Settings

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
