"""Tables of the classes of transformers for language models; all have pre-norm layers.

rotary, RMS norms, gated feed-forward, grouped queries     LlamaForCausalLM
rotary, layer norms, biases                                GPTNeoXForCausalLM
ALiBi, layer norms, biases, norm of the embeddings         BloomForCausalLM
learned positions, layer norms, biases                     GPT2LMHeadModel
"""

from typing import Optional, Tuple

from fairseq_posenc.exchange.huggingface import table as t
from fairseq_posenc.exchange.huggingface.convert import register_class
from fairseq_posenc.exchange.huggingface.entries import (
    ACTIVATIONS,
    GATED,
    activation,
    biases,
    gated_activation,
    rate,
    written,
)
from fairseq_posenc.exchange.huggingface.rope import rope
from fairseq_posenc.exchange.reader import Config
from fairseq_posenc.models.kinds import CAUSAL, Settings

#: Settings that all these classes have in common.
_ALWAYS: Settings = {"decoder_normalize_before": True, "no_scale_embedding": True}
_ROTARY = {**_ALWAYS, "position_encoding": "rotary", "rotary_pairing": "half"}
WIDTH = ("decoder_embed_dim", "decoder_input_dim", "decoder_output_dim")
_HEADS, LONGEST = "decoder_attention_heads", ("max_target_positions", "tokens_per_sample")
_PARALLEL = "here, the feed-forward of a layer reads the output of its attention"
#: The entries for sizes in most of these classes.
_SIZES = (
    t.entry("num_hidden_layers", ("decoder_layers",)),
    t.entry("hidden_size", WIDTH),
    t.entry("num_attention_heads", (_HEADS,)),
    t.entry("intermediate_size", ("decoder_ffn_embed_dim",)),
    t.entry("max_position_embeddings", LONGEST, Config.length),
)
_NORMS = t.joints(input_layernorm=t.NORM_1, post_attention_layernorm=t.NORM_2)


def _epsilon(theirs: str, usual: float) -> t.Group:
    return t.entry(theirs, ("layer_norm_eps",), Config.factor, usual)


def _key_heads(config: Config, known: Settings) -> Settings:
    shared = config.size("num_key_value_heads", known[_HEADS])
    return {"kv_heads": None if shared == known[_HEADS] else shared}


def _tied(config: Config) -> bool:
    """Whether config.json ties the output to the embedding; it does not by default."""
    return config.flag("tie_word_embeddings", False)


def _decoder(
    start: str,
    layer: str,
    joints: Tuple[t.Joint, ...],
    embedding: str,
    table: Optional[t.Table] = None,
    **outside: str,
) -> Tuple[t.Stack]:
    """The only stack of a class; the names of all its modules begin with *start*."""
    names = (start + layer, joints, f"{start}{embedding}.weight")
    return (t.Stack("decoder.", *names, t.joints(start, **outside), table),)


def _joint_layer(attention: str) -> Tuple[t.Joint, ...]:
    """The modules of a layer whose *attention* has one projection for queries, keys and values."""
    return (
        t.Joint(f"{attention}.query_key_value", (t.Q, t.K, t.V), t.BY_HEAD),
        *t.joints(f"{attention}.", dense=t.OUT),
        *t.joints("mlp.", dense_h_to_4h=t.FC1, dense_4h_to_h=t.FC2),
        *_NORMS,
    )


LLAMA = t.TransformersClass(
    "llama",
    {"LlamaForCausalLM": t.Architecture()},
    CAUSAL,
    stacks=_decoder(
        *("model.", "layers.{}."),
        (
            *t.joints("self_attn.", q_proj=t.Q, k_proj=t.K, v_proj=t.V, o_proj=t.OUT),
            *t.joints("mlp.", gate_proj=t.FC1, up_proj=t.GATE, down_proj=t.FC2),
            *_NORMS,
        ),
        "embed_tokens",
        norm=t.LAST_NORM,
    ),
    entries=(
        *_SIZES,
        _epsilon("rms_norm_eps", 1e-6),
        rate("attention_dropout", "attention_dropout"),
        t.fixed("head_dim", lambda settings: settings["decoder_embed_dim"] // settings[_HEADS]),
        t.Group(
            *("num_key_value_heads", ("kv_heads",), _key_heads),
            lambda known, path: {"num_key_value_heads": known["kv_heads"] or known[_HEADS]},
        ),
        gated_activation("hidden_act", "silu"),
        biases("attention_bias", "mlp_bias"),
        rope(),
    ),
    always={**_ROTARY, "norm": "rms", "dropout": 0.0},
    values={"feed_forward": (*GATED, "glu"), "activation_fn": ACTIVATIONS},
    biases={"self_attn.": ("attention_bias", False), "mlp.": ("mlp_bias", False), "": None},
    tied=_tied,
)
GPT_NEOX = t.TransformersClass(
    "gpt_neox",
    {"GPTNeoXForCausalLM": t.Architecture()},
    CAUSAL,
    stacks=_decoder(
        *("gpt_neox.", "layers.{}.", _joint_layer("attention"), "embed_in"),
        final_layer_norm=t.LAST_NORM,
    ),
    entries=(
        *_SIZES,
        _epsilon("layer_norm_eps", 1e-5),
        activation("hidden_act"),
        rate("attention_dropout", "attention_dropout"),
        rate("hidden_dropout", "dropout"),
        t.fixed("use_parallel_residual", False, True, why=_PARALLEL),
        t.fixed("attention_bias", True),
        rope("rotary_emb_base", "rotary_pct", 0.25),
    ),
    always=_ROTARY,
    values={"activation_fn": ACTIVATIONS},
    output="embed_out.weight",
    tied=_tied,
)
BLOOM = t.TransformersClass(
    "bloom",
    {"BloomForCausalLM": t.Architecture()},
    CAUSAL,
    stacks=_decoder(
        *("transformer.", "h.{}.", _joint_layer("self_attention"), "word_embeddings"),
        ln_f=t.LAST_NORM,
        word_embeddings_layernorm="layernorm_embedding",
    ),
    entries=(
        t.entry("n_layer", ("decoder_layers",)),
        t.entry("hidden_size", WIDTH),
        t.entry("n_head", (_HEADS,)),
        t.entry("seq_length", LONGEST, Config.length, 2048),  # ALiBi itself has no limit
        _epsilon("layer_norm_epsilon", 1e-5),
        rate("attention_dropout", "attention_dropout"),
        rate("hidden_dropout", "dropout"),
        t.fixed("apply_residual_connection_post_layernorm", False, written=False),
    ),
    always={
        **_ALWAYS,
        "position_encoding": "alibi",
        "decoder_ffn_embed_dim": lambda settings: 4 * settings["decoder_embed_dim"],
        "activation_fn": "gelu_accurate",
        "layernorm_embedding": True,
    },
    values={"activation_fn": ("gelu_accurate", "gelu_fast")},
    aliases={
        "num_hidden_layers": "n_layer",
        "num_attention_heads": "n_head",
        "n_embed": "hidden_size",
    },
)
GPT2 = t.TransformersClass(
    "gpt2",
    {"GPT2LMHeadModel": t.Architecture()},
    CAUSAL,
    stacks=_decoder(
        *("transformer.", "h.{}."),
        (
            t.Joint("attn.c_attn", (t.Q, t.K, t.V), t.TRANSPOSED),
            t.Joint("attn.c_proj", (t.OUT,), t.TRANSPOSED),
            t.Joint("mlp.c_fc", (t.FC1,), t.TRANSPOSED),
            t.Joint("mlp.c_proj", (t.FC2,), t.TRANSPOSED),
            *t.joints(ln_1=t.NORM_1, ln_2=t.NORM_2),
        ),
        "wte",
        t.Table("transformer.wpe.weight"),
        ln_f=t.LAST_NORM,
    ),
    entries=(
        t.entry("n_layer", ("decoder_layers",)),
        t.entry("n_embd", WIDTH),
        t.entry("n_head", (_HEADS,)),
        t.entry("n_inner", ("decoder_ffn_embed_dim",), usual=lambda c: 4 * c.size("n_embd")),
        t.entry("n_positions", LONGEST, Config.length),
        _epsilon("layer_norm_epsilon", 1e-5),
        activation("activation_function", usual="gelu_new"),
        rate("attn_pdrop", "attention_dropout", usual=0.1),
        rate("resid_pdrop", "dropout", usual=0.1),
        written("embd_pdrop", lambda settings: settings["dropout"]),
        t.fixed("scale_attn_weights", True, written=False),
        t.fixed("scale_attn_by_inverse_layer_idx", False, written=False),
    ),
    always={**_ALWAYS, "position_encoding": "learned"},
    values={"activation_fn": ACTIVATIONS},
    aliases={
        "num_hidden_layers": "n_layer",
        "hidden_size": "n_embd",
        "num_attention_heads": "n_head",
        "max_position_embeddings": "n_positions",
    },
)
register_class("hf-llama", LLAMA)
register_class("hf-gpt-neox", GPT_NEOX)
register_class("hf-bloom", BLOOM)
register_class("hf-gpt2", GPT2)
