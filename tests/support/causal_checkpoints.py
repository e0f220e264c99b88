"""Language models of random weights by the classes of transformers that can hold them."""

from support.foreign_models import trained

from fairseq_posenc.models.kinds import CAUSAL

WORDS = [f"w{number}" for number in range(40)]
SIZES = {
    "decoder_layers": 2,
    "decoder_embed_dim": 32,
    "decoder_input_dim": 32,
    "decoder_output_dim": 32,
    "decoder_ffn_embed_dim": 48,
    "decoder_attention_heads": 4,
    "decoder_normalize_before": True,
    "max_target_positions": 200,
    "tokens_per_sample": 200,
}
ROTARY = {**SIZES, "position_encoding": "rotary"}
LLAMA = {**ROTARY, "norm": "rms", "no_bias": True, "feed_forward": "swiglu"}
SCALED = {"rotary_scaling_factor": 4.0, "rotary_original_length": 30}
EXPRESSED = {
    "llama": ("hf-llama", LLAMA),
    "grouped": ("hf-llama", {**LLAMA, "kv_heads": 2, "rotary_pairing": "half"}),
    "geglu": ("hf-llama", {**LLAMA, "feed_forward": "geglu", "no_bias": False}),
    "glu": ("hf-llama", {**LLAMA, "feed_forward": "glu", "activation_fn": "relu"}),
    "untied": ("hf-llama", {**LLAMA, "share_decoder_input_output_embed": False}),
    "tied": (
        "hf-llama",
        {**LLAMA, "share_decoder_input_output_embed": True, "no_scale_embedding": True},
    ),
    **{
        rule: ("hf-llama", {**LLAMA, "rotary_scaling": rule, **SCALED})
        for rule in ("linear", "ntk", "yarn", "yarn_untruncated", "llama3")
    },
    "documents": (
        "hf-llama",
        {**LLAMA, "document_mask": True, "position_separators": "</s></s>"},
    ),
    "longrope": (
        "hf-llama",
        {**LLAMA, "rotary_scaling": "longrope", "rotary_factors": "1,1.5,2,4", **SCALED},
    ),
    "neox": ("hf-gpt-neox", {**ROTARY, "activation_fn": "gelu", "rotary_base": "500"}),
    "share": ("hf-gpt-neox", {**ROTARY, "rotary_fraction": 0.5}),
    "bloom": (
        "hf-bloom",
        {
            **SIZES,
            "position_encoding": "alibi",
            "activation_fn": "gelu_accurate",
            "layernorm_embedding": True,
            "decoder_ffn_embed_dim": 128,
        },
    ),
    "gpt2": (
        "hf-gpt2",
        {**SIZES, "position_encoding": "learned", "activation_fn": "gelu_accurate"},
    ),
}


def checkpoint_of(folder, settings, words=WORDS):
    """A checkpoint of random weights, none of which is a zero or a one that could be forgotten."""
    return trained(folder, kind=CAUSAL, words=words, **settings)
