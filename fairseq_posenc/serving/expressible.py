"""The settings that CTranslate2 can express, and the refusal of all others by name.

A setting with the role ``model`` is accepted if it is listed here, if it has its default, or if it
has no effect in the model at hand.  Everything else is refused, so a flag that is added later is
refused until somebody adds it here.
"""

import dataclasses
from typing import Any, Collection, Dict, List, Mapping

from fairseq_posenc.basics.errors import UsageError, flag_of
from fairseq_posenc.configuration.fields import plug_in_flags
from fairseq_posenc.configuration.given import has_effect
from fairseq_posenc.models.family import Family

#: Names of the engine's activations, by the value of ``--activation-fn``.
ACTIVATIONS = {
    "relu": "RELU",
    "gelu": "GELU",
    "gelu_accurate": "GELUTanh",
    "gelu_fast": "GELUTanh",
    "tanh": "Tanh",
}

#: Settings whose effect is read from the modules and parameters of the built model.
_READ = (
    *("layers", "embed_dim", "ffn_embed_dim", "attention_heads", "normalize_before"),
    *("learned_pos", "input_dim", "output_dim"),
)
READ_FROM_THE_MODEL = (
    *(f"{side}_{name}" for side in ("encoder", "decoder") for name in _READ),
    *("share_decoder_input_output_embed", "share_all_embeddings", "merge_src_tgt_embed"),
    *("no_token_positional_embeddings", "layernorm_embedding", "no_scale_embedding"),
    *("no_decoder_final_norm", "layer_norm_eps", "no_bias", "num_positions"),
    # positions; which encodings are expressed stands in positions.py
    *("position_encoding", "encoder_position_encoding", "decoder_position_encoding"),
    *("rotary_base", "rotary_fraction", "rotary_pairing"),
    *("rotary_scaling", "rotary_scaling_factor", "rotary_original_length"),
    *("shaw_max_distance", "shaw_values", "t5_num_buckets", "t5_max_distance"),
)
#: Settings of which some values are expressed.
VALUES: Dict[str, Collection[Any]] = {
    "activation_fn": ACTIVATIONS,
    "norm": ("layer", "rms"),
    "feed_forward": ("mlp", "glu"),
}
#: Settings of output layers of an encoder, which are not exported.
OF_HEADS = (
    *("lm_head", "untie_weights_roberta", "pooler_activation_fn"),
    *("spectral_norm_classification_head",),
)
#: Settings of segments, which an exported encoder takes as token types.
OF_SEGMENTS = ("num_segments", "segments")


def computing_settings(family: Family) -> List["dataclasses.Field[Any]"]:
    """The settings on which the outputs of a trained model depend.

    These have the role ``model``, or are the plug-in's with the role ``free``, such as
    ``--rotary-scaling``.
    """
    own = plug_in_flags()
    return [
        field
        for field in dataclasses.fields(family.dataclass)
        if field.metadata.get("role") == "model"
        or (field.metadata.get("role") == "free" and field.name in own)
    ]


def refuse_inexpressible(
    path: str, family: Family, settings: Mapping[str, Any], is_encoder: bool
) -> None:
    """Refuse settings that CTranslate2, or this export, does not know.

    Args:
        path: the checkpoint, for the message.
        family: declares the settings.
        settings: complete, by name.
        is_encoder: whether an encoder alone is exported, without its output layers.

    Raises:
        UsageError: naming the flags, their values, and the values that work.
    """
    known = {*READ_FROM_THE_MODEL, *(OF_HEADS + OF_SEGMENTS if is_encoder else ())}
    lost = []
    for field in computing_settings(family):
        name, default = field.name, field.metadata.get("default")
        value = settings.get(name, default)
        if value is None or value == default or name in known:
            continue
        if value not in VALUES.get(name, ()) and has_effect(name, settings, family.dataclass):
            works = VALUES.get(name) or (default,)
            lost.append(f"{flag_of(name)} {value} (only {' or '.join(map(str, works))} works)")
    if lost:
        raise UsageError(
            f"{path}: CTranslate2 cannot compute {', '.join(lost)}; nothing is written"
        )
