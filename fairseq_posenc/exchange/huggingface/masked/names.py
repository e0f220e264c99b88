"""Where the parameters of a masked language model are in the classes of transformers."""

from fairseq_posenc.exchange.huggingface.names import (
    FC1,
    FC2,
    GATE,
    IN_ROWS,
    NORM_1,
    NORM_2,
    OUT,
    Joint,
    K,
    Names,
    Q,
    V,
)

ROBERTA = Names(
    "roberta.encoder.layer.{}.",
    (
        Joint("attention.self.query", (Q,)),
        Joint("attention.self.key", (K,)),
        Joint("attention.self.value", (V,)),
        Joint("attention.output.dense", (OUT,)),
        Joint("attention.output.LayerNorm", (NORM_1,)),
        Joint("intermediate.dense", (FC1,)),
        Joint("output.dense", (FC2,)),
        Joint("output.LayerNorm", (NORM_2,)),
    ),
    "roberta.embeddings.word_embeddings.weight",
    {"layernorm_embedding": "roberta.embeddings.LayerNorm"},
    table="roberta.embeddings.position_embeddings.weight",
    output="lm_head.decoder.weight",
)
MODERNBERT = Names(
    "model.layers.{}.",
    (
        Joint("attn_norm", (NORM_1,)),
        Joint("attn.Wqkv", (Q, K, V), IN_ROWS),
        Joint("attn.Wo", (OUT,)),
        Joint("mlp_norm", (NORM_2,)),
        Joint("mlp.Wi", (FC1, GATE), IN_ROWS),
        Joint("mlp.Wo", (FC2,)),
    ),
    "model.embeddings.tok_embeddings.weight",
    {"layernorm_embedding": "model.embeddings.norm", "layer_norm": "model.final_norm"},
    output="decoder.weight",
    biases={
        "attn.": ("attention_bias", False),
        "mlp.": ("mlp_bias", False),
        "head.dense": ("classifier_bias", False),
        "decoder": ("decoder_bias", True),
        **dict.fromkeys(("attn_norm", "mlp_norm", "model.", "head.norm"), ("norm_bias", False)),
    },
)
