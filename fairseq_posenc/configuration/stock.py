"""Roles and ranges of stock fairseq's model flags, and what its other flags need.

Flags without a role here are part of the trained model; see :mod:`fairseq_posenc.flags.settings`.
fairseq accepts any number, and fails later or computes something else: a negative table of
positions, a layer that is never found.  The ranges refuse what cannot be meant; upper bounds leave
room for models far larger than any so far, and catch a wrong unit or a lost decimal point.
"""

from typing import Dict

from fairseq_posenc.flags.settings import Bound, Needs
from fairseq_posenc.layers.feed_forward import forms_with_activation

FREE = (
    "add_bos_token",
    "alignment_heads",
    "alignment_layer",
    "decoder_layers_to_keep",
    "encoder_layers_to_keep",
    "export",
    "ffn_blocks_to_remove",
    "load_checkpoint_heads",
    "max_positions",
    "max_source_positions",
    "max_target_positions",
    "mha_heads_to_keep",
    "tokens_per_sample",
    "tpu",
)
TRAINING = (
    "activation_dropout",
    "adaptive_softmax_dropout",
    "attention_dropout",
    "base_shuffle",
    "checkpoint_activations",
    "decoder_embed_path",
    "decoder_layerdrop",
    "dropout",
    "encoder_embed_path",
    "encoder_layerdrop",
    "ffn_reg_scale_factor",
    "mha_reg_scale_factor",
    "min_params_to_wrap",
    "offload_activations",
    "pooler_dropout",
    "quant_noise_pq",
    "quant_noise_pq_block_size",
    "quant_noise_scalar",
    "relu_dropout",
)

STOCK_ROLES: Dict[str, str] = {**dict.fromkeys(FREE, "free"), **dict.fromkeys(TRAINING, "training")}


def stock_role(name: str) -> str:
    """The role of a flag of fairseq's.

    >>> stock_role("dropout"), stock_role("encoder_layers")
    ('training', 'model')
    """
    return STOCK_ROLES.get(name, "model")


_TRANSFORMER: Needs = {"layer": ("transformer",)}

#: fairseq's flags of the sub-layers that units replace, with their ``needs``.
REPLACED: Dict[str, Needs] = {
    **dict.fromkeys(("scale_attn", "scale_fc", "scale_heads", "scale_resids"), _TRANSFORMER),
    **dict.fromkeys(("activation_dropout", "relu_dropout"), _TRANSFORMER),
    **dict.fromkeys(("encoder_ffn_embed_dim", "decoder_ffn_embed_dim"), _TRANSFORMER),
    # a masked language model's head has an activation, too
    "activation_fn": {"feed_forward": forms_with_activation, "lm_head": ("roberta",)},
    "encoder_attention_heads": _TRANSFORMER,
    # the attention to the source has heads, too
    "decoder_attention_heads": {**_TRANSFORMER, "no_cross_attention": (False,)},
}
#: Sizes, which change no formula: recipes give them to all their models.
SIZES = tuple(name for name in REPLACED if not name.startswith("scale_"))


Range = Dict[str, Bound]

#: Zero layers is the baseline without any attention.
_LAYERS: Range = {"at_least": 0, "at_most": 10_000}
_SIZE: Range = {"at_least": 1, "at_most": 1_000_000}
#: Tokens; fairseq keeps lengths in 32 bits.
_LENGTH: Range = {"at_least": 1, "at_most": 2**31 - 1}
#: A dropout of 1 leaves nothing.
_DROPOUT: Range = {"at_least": 0, "below": 1}
_PROBABILITY: Range = {"at_least": 0, "at_most": 1}
_FACTOR: Range = {"above": 0, "at_most": 1_000_000}
#: The weight of a term of the loss.
_WEIGHT: Range = {"at_least": 0, "at_most": 1_000_000}

STOCK_RANGES: Dict[str, Range] = {
    "activation_dropout": _DROPOUT,
    "adaptive_input_factor": _FACTOR,
    "adaptive_softmax_dropout": _DROPOUT,
    "adaptive_softmax_factor": _FACTOR,
    "alignment_heads": {"at_least": 1, "at_most": "decoder_attention_heads"},
    "alignment_layer": {"at_least": 0, "below": "decoder_layers"},
    "attention_dropout": _DROPOUT,
    "base_layers": _LAYERS,
    "base_sublayers": {**_LAYERS, "at_least": 1},
    "char_embedder_highway_layers": _LAYERS,
    "character_embedding_dim": _SIZE,
    "decoder_attention_heads": _SIZE,
    "decoder_embed_dim": _SIZE,
    "decoder_ffn_embed_dim": _SIZE,
    "decoder_input_dim": _SIZE,
    "decoder_layerdrop": _PROBABILITY,
    "decoder_layers": _LAYERS,
    "decoder_output_dim": _SIZE,
    "dropout": _DROPOUT,
    "encoder_attention_heads": _SIZE,
    "encoder_embed_dim": _SIZE,
    "encoder_ffn_embed_dim": _SIZE,
    "encoder_layerdrop": _PROBABILITY,
    "encoder_layers": _LAYERS,
    "ffn_blocks_to_remove": {"at_least": -1},
    "ffn_reg_scale_factor": _WEIGHT,
    "max_positions": _LENGTH,
    "max_source_positions": _LENGTH,
    "max_target_positions": _LENGTH,
    "mha_heads_to_keep": {"at_least": -1},
    "mha_reg_scale_factor": _WEIGHT,
    "pooler_dropout": _DROPOUT,
    "quant_noise_pq": _PROBABILITY,
    "quant_noise_pq_block_size": _SIZE,
    "quant_noise_scalar": _PROBABILITY,
    "relu_dropout": _DROPOUT,
    "tokens_per_sample": _LENGTH,
}
