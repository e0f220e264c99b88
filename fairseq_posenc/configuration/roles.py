"""The roles of stock fairseq's model flags, in one table, and what its other flags need.

Flags that are not listed are part of the trained model; see :mod:`fairseq_posenc.flags.settings`.
"""

from typing import Dict

from fairseq_posenc.flags.settings import Needs
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

STOCK_ROLES: Dict[str, str] = {
    **dict.fromkeys(FREE, "free"),
    **dict.fromkeys(TRAINING, "training"),
}


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
#: Those of them that change no formula: recipes give them to all their models.
SIZES = tuple(name for name in REPLACED if not name.startswith("scale_"))
