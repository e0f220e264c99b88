"""Roles and ranges of fairseq's own model flags, and the settings that some of them need.

Flags without a role here are part of the trained model; see :mod:`fairseq_posenc.flags.settings`.
Among them are those of quantisation noise: after scalar noise, evaluation quantises all weights;
product quantisation noise adds a matrix through which the embeddings pass.

fairseq accepts any number, and then fails later or computes something unintended, for example with
a table of negative size or a layer that does not exist.  The ranges refuse values that nobody can
mean; upper bounds far exceed all existing models, and catch a wrong unit or a lost decimal point.
"""

from typing import Dict

from fairseq_posenc.flags.options import SIDES
from fairseq_posenc.flags.settings import Bound, Needs
from fairseq_posenc.layers.feed_forward import forms_with_activation

FREE = (
    *("add_bos_token", "alignment_heads", "alignment_layer", "export", "load_checkpoint_heads"),
    *("decoder_layers_to_keep", "encoder_layers_to_keep", "ffn_blocks_to_remove"),
    *("max_positions", "max_source_positions", "max_target_positions", "mha_heads_to_keep"),
    *("tokens_per_sample", "tpu"),
)
TRAINING = (
    *("activation_dropout", "adaptive_softmax_dropout", "attention_dropout", "dropout"),
    *("base_shuffle", "checkpoint_activations", "min_params_to_wrap", "offload_activations"),
    *("decoder_embed_path", "decoder_layerdrop", "encoder_embed_path", "encoder_layerdrop"),
    *("ffn_reg_scale_factor", "mha_reg_scale_factor", "pooler_dropout", "relu_dropout"),
    "quant_noise_pq_block_size",
)
STOCK_ROLES: Dict[str, str] = {**dict.fromkeys(FREE, "free"), **dict.fromkeys(TRAINING, "training")}

_TRANSFORMER: Needs = {"layer": ("transformer",)}

#: fairseq's flags of the sub-layers that gated units replace, with their ``needs``.
REPLACED: Dict[str, Needs] = {
    **dict.fromkeys(("scale_attn", "scale_fc", "scale_heads", "scale_resids"), _TRANSFORMER),
    **dict.fromkeys(("activation_dropout", "relu_dropout"), _TRANSFORMER),
    **dict.fromkeys(("encoder_ffn_embed_dim", "decoder_ffn_embed_dim"), _TRANSFORMER),
    # also used by the head of a masked language model
    "activation_fn": {"feed_forward": forms_with_activation, "lm_head": ("roberta",)},
    "encoder_attention_heads": _TRANSFORMER,
    # also used by the attention to the source
    "decoder_attention_heads": {**_TRANSFORMER, "no_cross_attention": (False,)},
}
#: Flags that recipes give to all their models, so with gated units they cause only a warning.
SIZES = tuple(name for name in REPLACED if not name.startswith("scale_"))


Range = Dict[str, Bound]

#: A model with zero layers is the baseline without attention.
_LAYERS: Range = {"at_least": 0, "at_most": 10_000}
_SIZE: Range = {"at_least": 1, "at_most": 1_000_000}
#: Numbers of tokens; fairseq stores lengths in 32 bits.
_LENGTH: Range = {"at_least": 1, "at_most": 2**31 - 1}
#: Below 1, because a dropout or layer dropout of 1 drops everything.
_DROPOUT: Range = {"at_least": 0, "below": 1}
_PROBABILITY: Range = {"at_least": 0, "at_most": 1}
_FACTOR: Range = {"above": 0, "at_most": 1_000_000}
#: The weight of a term of the loss.
_WEIGHT: Range = {"at_least": 0, "at_most": 1_000_000}

STOCK_RANGES: Dict[str, Range] = {
    **dict.fromkeys((f"{side}_layers" for side in SIDES), _LAYERS),
    **dict.fromkeys(("base_layers", "char_embedder_highway_layers"), _LAYERS),
    "base_sublayers": {**_LAYERS, "at_least": 1},
    **dict.fromkeys((f"{side}_attention_heads" for side in SIDES), _SIZE),
    **dict.fromkeys((f"{side}_embed_dim" for side in SIDES), _SIZE),
    **dict.fromkeys((f"{side}_ffn_embed_dim" for side in SIDES), _SIZE),
    **dict.fromkeys(("decoder_input_dim", "decoder_output_dim"), _SIZE),
    **dict.fromkeys(("character_embedding_dim", "quant_noise_pq_block_size"), _SIZE),
    **dict.fromkeys(("max_positions", "tokens_per_sample"), _LENGTH),
    **dict.fromkeys(("max_source_positions", "max_target_positions"), _LENGTH),
    **dict.fromkeys(("activation_dropout", "attention_dropout", "dropout"), _DROPOUT),
    **dict.fromkeys(("adaptive_softmax_dropout", "pooler_dropout", "relu_dropout"), _DROPOUT),
    **dict.fromkeys((f"{side}_layerdrop" for side in SIDES), _DROPOUT),
    **dict.fromkeys(("quant_noise_pq", "quant_noise_scalar"), _PROBABILITY),
    **dict.fromkeys(("adaptive_input_factor", "adaptive_softmax_factor"), _FACTOR),
    **dict.fromkeys(("ffn_reg_scale_factor", "mha_reg_scale_factor"), _WEIGHT),
    **dict.fromkeys(("ffn_blocks_to_remove", "mha_heads_to_keep"), {"at_least": -1}),
    "alignment_heads": {"at_least": 1, "at_most": "decoder_attention_heads"},
    "alignment_layer": {"at_least": 0, "below": "decoder_layers"},
}
#: The ranges of the flags that count layers, channels, heads or tokens.
COUNTS = {
    name: bounds for name, bounds in STOCK_RANGES.items() if bounds in (_LAYERS, _SIZE, _LENGTH)
}
