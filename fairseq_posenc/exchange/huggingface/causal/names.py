"""Where the parameters of a language model are in the classes of transformers."""

from fairseq_posenc.exchange.huggingface.names import (
    BY_HEAD,
    FC1,
    FC2,
    GATE,
    NORM_1,
    NORM_2,
    OUT,
    TRANSPOSED,
    Joint,
    K,
    Names,
    Q,
    V,
)

LLAMA = Names(
    "model.layers.{}.",
    (
        Joint("self_attn.q_proj", (Q,)),
        Joint("self_attn.k_proj", (K,)),
        Joint("self_attn.v_proj", (V,)),
        Joint("self_attn.o_proj", (OUT,)),
        Joint("mlp.gate_proj", (FC1,)),
        Joint("mlp.up_proj", (GATE,)),
        Joint("mlp.down_proj", (FC2,)),
        Joint("input_layernorm", (NORM_1,)),
        Joint("post_attention_layernorm", (NORM_2,)),
    ),
    "model.embed_tokens.weight",
    {"layer_norm": "model.norm"},
    biases={"self_attn.": ("attention_bias", False), "mlp.": ("mlp_bias", False), "": None},
)
GPT_NEOX = Names(
    "gpt_neox.layers.{}.",
    (
        Joint("attention.query_key_value", (Q, K, V), BY_HEAD),
        Joint("attention.dense", (OUT,)),
        Joint("mlp.dense_h_to_4h", (FC1,)),
        Joint("mlp.dense_4h_to_h", (FC2,)),
        Joint("input_layernorm", (NORM_1,)),
        Joint("post_attention_layernorm", (NORM_2,)),
    ),
    "gpt_neox.embed_in.weight",
    {"layer_norm": "gpt_neox.final_layer_norm"},
    output="embed_out.weight",
)
BLOOM = Names(
    "transformer.h.{}.",
    (
        Joint("self_attention.query_key_value", (Q, K, V), BY_HEAD),
        Joint("self_attention.dense", (OUT,)),
        Joint("mlp.dense_h_to_4h", (FC1,)),
        Joint("mlp.dense_4h_to_h", (FC2,)),
        Joint("input_layernorm", (NORM_1,)),
        Joint("post_attention_layernorm", (NORM_2,)),
    ),
    "transformer.word_embeddings.weight",
    {
        "layer_norm": "transformer.ln_f",
        "layernorm_embedding": "transformer.word_embeddings_layernorm",
    },
)
GPT2 = Names(
    "transformer.h.{}.",
    (
        Joint("attn.c_attn", (Q, K, V), TRANSPOSED),
        Joint("attn.c_proj", (OUT,), TRANSPOSED),
        Joint("mlp.c_fc", (FC1,), TRANSPOSED),
        Joint("mlp.c_proj", (FC2,), TRANSPOSED),
        Joint("ln_1", (NORM_1,)),
        Joint("ln_2", (NORM_2,)),
    ),
    "transformer.wte.weight",
    {"layer_norm": "transformer.ln_f"},
    table="transformer.wpe.weight",
)
