"""RoFormer in the terms of ``transformers``: settings in config.json, and names of parameters."""

from typing import Any, Callable, Dict, List, NamedTuple, Tuple

import torch
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.encodings.rotary_frequencies import frequencies
from fairseq_posenc.exchange.config import Config
from fairseq_posenc.exchange.formats import Logits
from fairseq_posenc.exchange.huggingface import folder as hf
from fairseq_posenc.exchange.huggingface.encoder_heads import (
    CLASSIFIER_SETTINGS,
    TOKEN_HEAD,
    Architecture,
    classifier,
    token_classifier,
)
from fairseq_posenc.exchange.reader import ForeignParameters, Reader
from fairseq_posenc.flags.options import Layer
from fairseq_posenc.models import kinds

BASE = "roformer."
TABLE = BASE + "encoder.embed_positions.weight"
_EMBEDDING = {kinds.ENCODER + "layernorm_embedding": BASE + "embeddings.LayerNorm"}
_PROJECT = {kinds.ENCODER + "embed_project": BASE + "embeddings_project"}
#: Names within a layer.
PROJECTIONS = {
    "self_attn.q_proj": "attention.self.query",
    "self_attn.k_proj": "attention.self.key",
    "self_attn.v_proj": "attention.self.value",
    "self_attn.out_proj": "attention.output.dense",
    "fc1": "intermediate.dense",
    "fc2": "output.dense",
}
_NORMS = {
    "self_attn_layer_norm": "attention.output.LayerNorm",
    "final_layer_norm": "output.LayerNorm",
}
_LM = {
    kinds.LM_HEAD + "dense": "cls.predictions.transform.dense",
    kinds.LM_HEAD + "layer_norm": "cls.predictions.transform.LayerNorm",
}
LM_BIAS = "cls.predictions.bias"
#: The tensors with a row for each symbol.
ROWS = (BASE + hf.TOKENS, hf.DECODER + "weight", hf.DECODER + "bias", LM_BIAS)
#: Tensors in files of older versions that do not affect the outputs.
_UNUSED = (BASE + "pooler.", BASE + "embeddings.position_ids", "cls.seq_relationship.")

#: ``norm_type`` and ``use_bias`` of the models that each format reads; transformers' first.
_VERSIONS = {"hf-roformer": ("layer_norm", True), "roformer-v2": ("rms_norm", False)}


def open_roformer(path: str, format: str) -> hf.Folder:
    """Read a folder of model type ``roformer``.

    Args:
        format: hf-roformer or roformer-v2.

    Raises:
        UsageError: as for :func:`open_folder`, or the folder belongs to another format.
    """
    folder = hf.open_folder(path, "roformer")
    _check_version(folder.config, format)
    folder.config.sizes(_SIZES)  # refuses heads that do not divide the channels
    return folder


def _check_version(config: Config, format: str) -> None:
    """Refuse a folder that *format* does not read, naming the format that does."""
    norm_type, use_bias = _VERSIONS["hf-roformer"]
    found = (config.get("norm_type", norm_type), config.get("use_bias", use_bias))
    if found == _VERSIONS[format]:
        return
    known = {version: name for name, version in _VERSIONS.items()}
    if found in known:
        advice = f"that is not for {format}; import it with {known[found]}"
    else:
        pairs = (f"{norm} with {bias} ({name})" for (norm, bias), name in known.items())
        advice = f"known: {' and '.join(pairs)}"
    raise UsageError(f"{config.path}: norm_type is {found[0]} and use_bias is {found[1]}; {advice}")


ARCHITECTURES = {
    "RoFormerForMaskedLM": Architecture(_LM, CLASSIFIER_SETTINGS),
    "RoFormerForCausalLM": Architecture(_LM, CLASSIFIER_SETTINGS),
    "RoFormerForSequenceClassification": classifier(kinds.SENTENCE_HEAD),
    "RoFormerForTokenClassification": token_classifier(TOKEN_HEAD),
}


def names_of(layers: int, projected: bool, architecture: Architecture) -> Dict[str, str]:
    """Transformers' name of each parameter, except token and segment embeddings.

    Args:
        projected: whether token embeddings and layers differ in size.
        architecture: the modules on top of the encoder.
    """
    modules = {**_EMBEDDING, **(_PROJECT if projected else {}), **architecture.modules}
    for layer in range(layers):
        for ours, theirs in {**PROJECTIONS, **_NORMS}.items():
            modules[f"{kinds.ENCODER}layers.{layer}.{ours}"] = (
                f"{BASE}encoder.layer.{layer}.{theirs}"
            )
    return {
        f"{ours}.{kind}": f"{theirs}.{kind}"
        for ours, theirs in modules.items()
        for kind in ("weight", "bias")
    }


def sine_table(length: int, head_dim: int) -> Tensor:
    """Sines and cosines of every position, (length, D)."""
    positions = torch.arange(length, dtype=torch.float64)
    angles = positions.unsqueeze(1) * frequencies(head_dim, 10000.0)
    return torch.cat((angles.sin(), angles.cos()), dim=1).float()


def drop_unused(reader: Reader, config: Config) -> List[str]:
    """Discard tensors that do not affect the outputs; returns a note for each but the sine table.

    The saved sine table is a constant that rotary computes.

    Raises:
        UsageError: the saved sine table is not the usual one, or not of the size in *config*.
    """
    if TABLE in reader:
        _check_table(reader, reader.take(TABLE), config)
    return [f"left out {key}, which does not affect the outputs" for key in reader.drop(*_UNUSED)]


def _check_table(reader: Reader, table: Tensor, config: Config) -> None:
    heads, channels = config.size("num_attention_heads"), config.size("hidden_size")
    length = config.get("max_position_embeddings", None)
    if table.dim() != 2 or table.size(1) * heads != channels:
        raise UsageError(
            f"{config.path}: num_attention_heads is {heads}, which makes {channels // heads} "
            f"channels per head of hidden_size {channels}, but {TABLE} in {reader.path} has "
            f"{table.size(-1) if table.dim() else 1}"
        )
    if length not in (None, len(table)):
        raise UsageError(
            f"{config.path}: max_position_embeddings is {length}, but {TABLE} in {reader.path} has "
            f"{len(table)} positions"
        )
    if not torch.allclose(
        table, sine_table(len(table), table.size(1)), atol=2e-3
    ):  # the model may have been saved in fp16
        raise UsageError(
            f"{reader.path}: {TABLE} is not the usual sine table (base 10000); other tables "
            "cannot be imported"
        )


def reference_for(path: str, architecture: str, order: Tensor) -> Logits:
    """A function for the logits of a folder, computed by transformers.

    Its table of sines and cosines is computed in float32, whatever the folder has, since a table
    saved in fp16 alone changes logits by 0.001.

    Args:
        order: transformers' number of each symbol of fairseq's dictionary, (V,).
    """

    def logits(tokens: Tensor, segments: Tensor) -> Tensor:
        model = hf.load_model(path, architecture, computed=[TABLE])
        _renew_table(model)
        with torch.no_grad():
            out = model(
                input_ids=order[tokens],
                attention_mask=tokens.ne(kinds.PAD).long(),
                token_type_ids=segments,
            ).logits
        return out[..., order] if ARCHITECTURES[architecture].language_model else out

    return logits


@torch.no_grad()
def _renew_table(model: Layer) -> None:
    """Compute the table of sines and cosines by the class of transformers, in float32."""
    saved = model.roformer.encoder.embed_positions
    new = type(saved)(*saved.weight.shape)
    # newer versions leave it to the model to fill the table
    weight = new.create_weight() if hasattr(new, "create_weight") else new.weight
    saved.weight.copy_(weight)


def table_note(parameters: ForeignParameters) -> str:
    """A remark on the reference's table of sines and cosines, for messages."""
    table = parameters.get(TABLE)
    if table is None:
        return ", which computes the sine table that the file lacks"
    exact = sine_table(*table.shape)
    usual = table.dtype == torch.float32 and torch.allclose(table, exact, atol=1e-6)
    return "" if usual else ", its sine table computed in float32, not read from the file"


#: Settings common to all RoFormers.
_ALWAYS: kinds.Settings = {
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
    _Entry("max_positions", "max_position_embeddings", 1536, Config.length),
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


def settings_of(config: Config) -> kinds.Settings:
    """The flags of the encoder in a folder.

    Raises:
        UsageError: a number is missing, or an entry has a value that cannot be imported.
    """
    settings = {
        **_ALWAYS,
        **{name: config.size(key) for name, key in _SIZES.items()},
        **{entry.setting: entry.read(config, entry.key, entry.default) for entry in _ENTRIES},
        "activation_fn": hf.activation_of(config),
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


def entries_for(settings: kinds.Settings, source: str) -> Dict[str, Any]:
    """The entries of config.json for an encoder.

    Args:
        settings: complete settings.

    Raises:
        UsageError: transformers has no such activation.
    """
    return {
        "model_type": "roformer",
        **{key: settings[name] for name, key in _SIZES.items()},
        **{entry.key: settings[entry.setting] for entry in _ENTRIES},
        "type_vocab_size": settings["num_segments"] or 2,
        "embedding_size": settings["encoder_input_dim"],
        "hidden_act": hf.activation_for(settings["activation_fn"], source),
        "initializer_range": 0.02,
        "torch_dtype": "float32",
    }
