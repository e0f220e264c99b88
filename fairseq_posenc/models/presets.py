"""Settings that presets of several families share, and the presets of masked language models."""

from typing import Any, Dict

from fairseq_posenc.models.family import Preset

ROTARY: Dict[str, Any] = {"position_encoding": "rotary"}
PERFORMER: Dict[str, Any] = {**ROTARY, "attention": "favor"}  # RoFormer section 4.4

#: RoFormerV2 (GAU section 4.1): RoFormer without biases and without parameters in its norms
ROFORMER_V2: Dict[str, Any] = {
    **ROTARY,
    "norm": "rms",
    "layer_norm_eps": 1e-12,
    "no_bias": True,
    "init_weights": "truncated_normal",
}
#: GAU section 4.1: gated units in place of RoFormerV2's layers
GAU: Dict[str, Any] = {**ROFORMER_V2, "layer": "gated"}
#: GAU at 128 channels, for which the paper's key size of 128 is too large
GAU_TINY: Dict[str, Any] = {**GAU, "gau_key_size": 32}


def _sizes(channels: int, heads: int, layers: int) -> Dict[str, Any]:
    return {
        "encoder_embed_dim": channels,
        "encoder_ffn_embed_dim": 4 * channels,
        "encoder_attention_heads": heads,
        "encoder_layers": layers,
    }


TINY, BASE, LARGE = _sizes(128, 4, 2), _sizes(768, 12, 12), _sizes(1024, 16, 24)
# the released RoFormerV2 and GAU models
RELEASED = {"lm_head": "tied", "num_segments": 2, "activation_fn": "relu"}
_UNTIED = {"untie_cls": True, **BASE}
PRESETS: Dict[str, Preset] = {
    "roformer_masked_lm_tiny": {**ROTARY, **TINY},
    "roformer_masked_lm_base": {**ROTARY, **BASE},
    "roformer_masked_lm_large": {**ROTARY, **LARGE},
    # TUPE Table 2, from BERT-A to its ablations
    "bert_a_masked_lm_base": {"position_encoding": "learned", **BASE},
    "bert_r_masked_lm_base": {"position_encoding": "learned+t5", **BASE},
    "tupe_a_masked_lm_base": {"position_encoding": "tupe", **_UNTIED},
    "tupe_r_masked_lm_base": {"position_encoding": "tupe+t5", **_UNTIED},
    "tupe_a_tie_cls_masked_lm_base": {"position_encoding": "tupe", "untie_cls": False, **BASE},
    "bert_ad_masked_lm_base": {"position_encoding": "bert_ad", **BASE},
    # the relative positions of RoFormer Eq. 32 (keys alone), 34 and 37, in BERT's shape
    "shaw_masked_lm_base": {"position_encoding": "shaw", **BASE},
    "transformer_xl_masked_lm_base": {"position_encoding": "transformer_xl", **BASE},
    "deberta_masked_lm_base": {"position_encoding": "deberta", **BASE},
    # RoFormer section 4.4; its baseline without rotary is --position-encoding learned
    "performer_masked_lm_tiny": {**PERFORMER, **TINY},
    "performer_masked_lm_base": {**PERFORMER, **BASE},
    # GAU sections 4.1 and 5.1
    "roformer_v2_masked_lm_tiny": {**ROFORMER_V2, **RELEASED, **TINY},
    "roformer_v2_masked_lm_base": {**ROFORMER_V2, **RELEASED, **BASE},
    "roformer_v2_masked_lm_large": {**ROFORMER_V2, **RELEASED, **LARGE},
    "gau_masked_lm_tiny": {
        **GAU_TINY,
        **RELEASED,
        "encoder_embed_dim": 128,
        "encoder_layers": 4,
    },
    "gau_masked_lm_base": {**GAU, **RELEASED, "encoder_embed_dim": 768, "encoder_layers": 24},
}
