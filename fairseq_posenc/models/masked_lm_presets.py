"""The architectures of masked language models: sizes, and one set of settings each."""

from typing import Any, Dict

from fairseq_posenc.models.family import Preset
from fairseq_posenc.models.presets import GAU, GAU_TINY, PERFORMER, ROFORMER_V2, ROTARY


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
