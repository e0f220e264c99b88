"""The architectures of each family: the settings that each value of ``--arch`` stands for."""

from typing import Any, Dict, Optional

from fairseq_posenc.models.family import Preset


def _encoding(name: str) -> Dict[str, Any]:
    return {"position_encoding": name}


ROTARY, LEARNED, TUPE = _encoding("rotary"), _encoding("learned"), _encoding("tupe")
SHAW, XL, DEBERTA = _encoding("shaw"), _encoding("transformer_xl"), _encoding("deberta")
PERFORMER: Dict[str, Any] = {**ROTARY, "attention": "favor"}  # RoFormer section 4.4

#: RoFormerV2 (GAU section 5.1): RoFormer without biases and without parameters in its norms
ROFORMER_V2: Dict[str, Any] = {**ROTARY, "norm": "rms", "layer_norm_eps": 1e-12, "no_bias": True}
ROFORMER_V2["init_weights"] = "truncated_normal"
#: GAU section 4.1: gated units in place of RoFormerV2's layers
GAU: Dict[str, Any] = {**ROFORMER_V2, "layer": "gated"}
#: GAU at 128 channels, for which the paper's key size of 128 is too large
GAU_TINY: Dict[str, Any] = {**GAU, "gau_key_size": 32}


# --- translation


def _translation(channels: int, ffn: int, heads: int, layers: int) -> Dict[str, int]:
    return {
        "encoder_embed_dim": channels,
        "encoder_ffn_embed_dim": ffn,
        "encoder_attention_heads": heads,
        "decoder_attention_heads": heads,
        "encoder_layers": layers,
        "decoder_layers": layers,
    }


_TINY = _translation(128, 512, 4, 2)
_BASE = _translation(512, 2048, 8, 6)  # RoFormer Table 1: the Transformer base of WMT14 En-De
_EMBEDDING_NORM = {"layernorm_embedding": True}
TRANSLATION: Dict[str, Preset] = {
    # for tests and the quickstart
    "roformer_tiny": {**ROTARY, **_TINY},
    # fairseq's shape for small corpora
    "roformer_iwslt_de_en": {**ROTARY, **_translation(512, 1024, 4, 6)},
    "roformer_base": {**ROTARY, **_BASE},
    "roformer_wmt_en_de": {**ROTARY, **_BASE},
    "roformer_big": {**ROTARY, **_translation(1024, 4096, 16, 6), "dropout": 0.3},
    # Garg et al. 2019: word alignments supervised in one layer
    "roformer_align": {**ROTARY, **_BASE, "alignment_layer": 4, "alignment_heads": 1},
    # baselines for rotary
    "tupe_tiny": {**TUPE, **_TINY},
    "tupe_base": {**TUPE, **_BASE},
    "t5bias_base": {**_encoding("t5"), **_BASE},
    "alibi_base": {**_encoding("alibi"), **_BASE},
    # RoFormer Eq. 32 (clip distance: Shaw et al. section 4.1), Eq. 34 and Eq. 37
    "shaw_base": {**SHAW, "shaw_values": True, "shaw_max_distance": 16, **_BASE},
    "transformer_xl_base": {**XL, **_BASE},
    "deberta_base": {**DEBERTA, **_BASE},
    # RoFormer section 4.4; for its baseline without rotary: --position-encoding sinusoidal
    "performer_tiny": {**PERFORMER, **_TINY},
    "performer_base": {**PERFORMER, **_BASE},
    # GAU sections 4.1 and 5.1; two units replace each Transformer layer
    "roformer_v2_base": {**ROFORMER_V2, **_EMBEDDING_NORM, **_BASE},
    # truncated_normal, with standard deviation 0.02, slows the start of training at 128 channels
    "gau_tiny": {
        **GAU_TINY,
        **_EMBEDDING_NORM,
        **_TINY,
        "encoder_layers": 4,
        "init_weights": "default",
    },
    "gau_base": {**GAU, **_EMBEDDING_NORM, **_BASE, "encoder_layers": 12},
}
MULTILINGUAL: Dict[str, Preset] = {"multilingual_roformer": ROTARY}


# --- masked language models


def _bert(channels: int, heads: int, layers: int, ffn: Optional[int] = None) -> Dict[str, Any]:
    return {
        "encoder_embed_dim": channels,
        "encoder_ffn_embed_dim": ffn or 4 * channels,
        "encoder_attention_heads": heads,
        "encoder_layers": layers,
    }


_BERT_TINY, _BERT_BASE, _BERT_LARGE = _bert(128, 4, 2), _bert(768, 12, 12), _bert(1024, 16, 24)
_UNTIED = {"untie_cls": True, **_BERT_BASE}
#: ModernBERT (Warner et al. 2024, arXiv 2412.13663, section 2.1): pre-norm, without a second norm
#: at the start; GeGLU; no biases; one layer in three attends to up to 8,192 tokens on each side
_MODERN: Dict[str, Any] = {
    **ROTARY,
    "rotary_base": "160000,10000*2",
    "attention": "local",
    "local_window": "16384,128*2",
    "encoder_normalize_before": True,
    "skip_first_norm": True,
    "feed_forward": "geglu",
    "no_bias": True,
    "pooler_norm": True,
    "pooler_activation_fn": "gelu",
}
#: Settings of the released RoFormerV2 and GAU models.
RELEASED = {"lm_head": "tied", "num_segments": 2, "activation_fn": "relu"}
MASKED_LM: Dict[str, Preset] = {
    "roformer_masked_lm_tiny": {**ROTARY, **_BERT_TINY},
    "roformer_masked_lm_base": {**ROTARY, **_BERT_BASE},
    "roformer_masked_lm_large": {**ROTARY, **_BERT_LARGE},
    # TUPE Table 2: baselines, TUPE and its ablations
    "bert_a_masked_lm_base": {**LEARNED, **_BERT_BASE},
    "bert_r_masked_lm_base": {**_encoding("learned+t5"), **_BERT_BASE},
    "tupe_a_masked_lm_base": {**TUPE, **_UNTIED},
    "tupe_r_masked_lm_base": {**_encoding("tupe+t5"), **_UNTIED},
    "tupe_a_tie_cls_masked_lm_base": {**TUPE, "untie_cls": False, **_BERT_BASE},
    "bert_ad_masked_lm_base": {**_encoding("bert_ad"), **_BERT_BASE},
    # the relative positions of RoFormer Eq. 32 (keys alone), 34 and 37, in BERT's shape
    "shaw_masked_lm_base": {**SHAW, **_BERT_BASE},
    "transformer_xl_masked_lm_base": {**XL, **_BERT_BASE},
    "deberta_masked_lm_base": {**DEBERTA, **_BERT_BASE},
    # RoFormer section 4.4; for its baseline without rotary: --position-encoding learned
    "performer_masked_lm_tiny": {**PERFORMER, **_BERT_TINY},
    "performer_masked_lm_base": {**PERFORMER, **_BERT_BASE},
    # `export hf-modernbert` can write these; base has the paper's 149 million parameters
    "modernbert_masked_lm_tiny": {**_bert(128, 4, 3, 192), **_MODERN},
    "modernbert_masked_lm_base": {**_bert(768, 12, 22, 1152), **_MODERN},
    # GAU sections 4.1 and 5.1
    "roformer_v2_masked_lm_tiny": {**ROFORMER_V2, **RELEASED, **_BERT_TINY},
    "roformer_v2_masked_lm_base": {**ROFORMER_V2, **RELEASED, **_BERT_BASE},
    "roformer_v2_masked_lm_large": {**ROFORMER_V2, **RELEASED, **_BERT_LARGE},
    "gau_masked_lm_tiny": {**GAU_TINY, **RELEASED, "encoder_embed_dim": 128, "encoder_layers": 4},
    "gau_masked_lm_base": {**GAU, **RELEASED, "encoder_embed_dim": 768, "encoder_layers": 24},
}


# --- language models


def _gpt(channels: int, heads: int, layers: int) -> Dict[str, Any]:
    return {
        "decoder_embed_dim": channels,
        "decoder_ffn_embed_dim": 4 * channels,
        "decoder_attention_heads": heads,
        "decoder_layers": layers,
        "decoder_normalize_before": True,
        "share_decoder_input_output_embed": True,
        "activation_fn": "gelu",
        "dropout": 0.0,
    }


# RoFormer 4.6.1 and 4.7 use the hyperparameters of GPT-3's 125 M and 1.3 B models, which are in
# Brown et al., arXiv 2005.14165, Table 2.1.  That table gives the larger model 24 heads of size
# 128, which do not fit its 2,048 channels; 16 heads do.
_GPT_TINY, _GPT_SMALL, _GPT_MEDIUM = _gpt(128, 4, 2), _gpt(768, 12, 12), _gpt(2048, 16, 24)
# FoX, the variant of LLaMA's architecture without RoPE (Lin et al., arXiv 2503.02130, section 4.1):
# pre-norm, RMS norms, SwiGLU, no biases except in the gates.  Of FoX's Pro block, only the norm of
# queries and keys is available (--qk-norm).  Its output gates, with their norm, are missing, and so
# is the mixture of each token's keys and values with those of the token before.
_LLAMA = {"norm": "rms", "no_bias": True, "feed_forward": "swiglu", "decoder_ffn_embed_dim": 2048}


def _grouped(kv_heads: int) -> Dict[str, Any]:
    return {**ROTARY, "rotary_pairing": "half", "kv_heads": kv_heads}


LANGUAGE_MODEL: Dict[str, Preset] = {
    "roformer_lm_tiny": {**ROTARY, **_GPT_TINY},
    "roformer_lm_small": {**ROTARY, **_GPT_SMALL},
    "roformer_lm_medium": {**ROTARY, **_GPT_MEDIUM},
    # baselines for rotary
    "learned_lm_small": {**LEARNED, **_GPT_SMALL},
    "t5bias_lm_small": {**_encoding("t5"), **_GPT_SMALL},
    "alibi_lm_small": {**_encoding("alibi"), **_GPT_SMALL},
    "shaw_lm_small": {**SHAW, **_GPT_SMALL},
    "transformer_xl_lm_small": {**XL, **_GPT_SMALL},
    # LLaMA's blocks (Touvron et al., arXiv 2302.13971, section 2.2) with the grouped queries of
    # LLaMA 2 (arXiv 2307.09288, section 2.2); `export hf-llama` can write these models
    "llama_lm_tiny": {**_GPT_TINY, **_LLAMA, "decoder_ffn_embed_dim": 344, **_grouped(2)},
    "llama_lm_small": {**_GPT_SMALL, **_LLAMA, **_grouped(4)},
    "fox_lm": {**_GPT_SMALL, **_LLAMA, **_encoding("fox")},
    # Yang et al., arXiv 2501.18795: three of every four layers have rotary and a sliding window;
    # the fourth has no positions and attends to the 65,536 tokens before each token
    "rnope_swa_lm": {
        **_GPT_SMALL,
        **_LLAMA,
        "position_encoding": "rotary*3,none",
        "attention": "local",
        "local_window": "512*3,65536",
    },
    # RoFormer section 4.4: 12 layers, 768 channels, 12 heads; for its baseline without rotary, give
    # --position-encoding learned, as in the code that RoFormer cites
    "performer_lm_enwik8": {**PERFORMER, **_GPT_SMALL},
    # 24 units as in GAU section 5.1, two per Transformer layer; pre-norm, like the other models
    "gau_lm_small": {**_GPT_SMALL, **GAU},
}
