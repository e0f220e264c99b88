"""The roles of stock fairseq's model flags, in one table; see :mod:`fairseq_posenc.settings`.

Flags that are not listed are part of the trained model.
"""

from typing import Dict

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
