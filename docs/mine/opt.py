"""OPT: a position table with two unused first rows, norms first, ReLU (Zhang et al. 2022)."""

from fairseq_posenc.exchange.huggingface import table as t
from fairseq_posenc.exchange.huggingface.convert import register_class
from fairseq_posenc.exchange.huggingface.entries import ACTIVATIONS, activation, rate
from fairseq_posenc.exchange.reader import Config
from fairseq_posenc.models.kinds import CAUSAL

DECODER = "model.decoder."

register_class(
    "hf-opt",
    t.TransformersClass(
        "opt",
        {"OPTForCausalLM": t.Architecture()},
        CAUSAL,
        stacks=(
            t.Stack(
                "decoder.",
                DECODER + "layers.{}.",
                t.same(t.Q, t.K, t.V, t.OUT, t.FC1, t.FC2, t.NORM_1, t.NORM_2),
                DECODER + "embed_tokens.weight",
                (t.Joint(DECODER + "final_layer_norm", (t.LAST_NORM,)),),
                t.Table(DECODER + "embed_positions.weight", lambda config: 2),
            ),
        ),
        entries=(
            t.entry(
                "hidden_size", ("decoder_embed_dim", "decoder_input_dim", "decoder_output_dim")
            ),
            t.fixed("word_embed_proj_dim", lambda settings: settings["decoder_embed_dim"]),
            t.entry("num_hidden_layers", ("decoder_layers",)),
            t.entry("num_attention_heads", ("decoder_attention_heads",)),
            t.entry("ffn_dim", ("decoder_ffn_embed_dim",)),
            t.entry(
                "max_position_embeddings",
                ("max_target_positions", "tokens_per_sample"),
                Config.length,
            ),
            activation("activation_function", usual="relu"),
            rate("dropout", "dropout", usual=0.1),
            rate("attention_dropout", "attention_dropout"),
            rate("layerdrop", "decoder_layerdrop"),
            t.fixed("do_layer_norm_before", True),
            t.fixed("_remove_final_layer_norm", False, written=False),
            t.fixed("enable_bias", True, written=False),
            t.fixed("layer_norm_elementwise_affine", True, written=False),
        ),
        always={
            "decoder_normalize_before": True,
            "no_scale_embedding": True,
            "position_encoding": "learned",
        },
        values={"activation_fn": ACTIVATIONS},
    ),
)
