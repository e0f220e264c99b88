"""``T5ForConditionalGeneration``: T5 bias, RMS norms first, no biases."""

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.exchange.config import Config
from fairseq_posenc.exchange.huggingface import table as t
from fairseq_posenc.exchange.huggingface.convert import register_class
from fairseq_posenc.exchange.huggingface.entries import ACTIVATIONS, gated_activation, rate
from fairseq_posenc.exchange.huggingface.translation import NORMS_FIRST, WIDTH, longest
from fairseq_posenc.models.kinds import TRANSLATION, Settings

#: The table of both, by our name.
_TABLE = "position_bias.t5.table"
_FORM, _SCALES = "feed_forward_proj", "scale_decoder_outputs"
_GATED = {"swiglu": "silu", "geglu": "gelu_python"}
_GATED_OR_NOT = gated_activation(_FORM, "relu", "gated-", _GATED)


def _form_of(config: Config, known: Settings) -> Settings:
    """The form of the feed-forward sub-layer, and its activation."""
    form = config.name(_FORM, "relu")
    form = "gated-gelu_new" if form == "gated-gelu" else form  # as the class reads it
    gate, _, activation = form.rpartition("-")
    for entry, value in (("dense_act_fn", activation), ("is_gated_act", gate == "gated")):
        config.one_of(entry, value, (value,))  # what the class reads in place of the form
    return _GATED_OR_NOT.settings(config._replace(entries={_FORM: form}), known)


def _tied(config: Config) -> bool:
    """Whether the output is the embedding; version 5 of the library saves every model as tied."""
    if config.entries.get(_SCALES, True) is None:  # the class takes it for false
        raise UsageError(f"{config.path}: {_SCALES} is null; it must be true or false")
    return config.flag(_SCALES, config.flag("tie_word_embeddings", True))


def _stack(side: str) -> t.Stack:
    attention, cross = "layer.0.SelfAttention.", "layer.1.EncDecAttention."
    last = "layer.2." if side == "decoder" else "layer.1."
    dense, biases = last + "DenseReluDense.", f"{side}.block.0.{attention}relative_attention_bias"
    of_source = (
        t.Joint(cross + "q", (t.CROSS_Q,), t.UNSCALED),
        *t.joints(cross, k=t.CROSS_K, v=t.CROSS_V, o=t.CROSS_OUT),
        *t.joints("layer.1.", layer_norm=t.CROSS_NORM),
    )
    joints = (
        t.Joint(attention + "q", (t.Q,), t.UNSCALED),
        *t.joints(attention, k=t.K, v=t.V, o=t.OUT),
        *t.joints("layer.0.", layer_norm=t.NORM_1),
        *(of_source if side == "decoder" else ()),
        t.Joint(dense + "wi", (t.FC1,), when=lambda s, number: s["feed_forward"] == "mlp"),
        t.Joint(dense + "wi_0", (t.FC1,), when=lambda s, number: s["feed_forward"] != "mlp"),
        t.Joint(dense + "wi_1", (t.GATE,), when=lambda s, number: s["feed_forward"] != "mlp"),
        *t.joints(dense, wo=t.FC2),
        *t.joints(last, layer_norm=t.NORM_2),
    )
    return t.Stack(
        *(f"{side}.", f"{side}.block.{{}}.", joints, f"{side}.embed_tokens.weight"),
        (t.Joint(f"{side}.final_layer_norm", (t.LAST_NORM,)), t.Joint(biases, (_TABLE,))),
    )


register_class(
    "hf-t5",
    t.TransformersClass(
        "t5",
        {"T5ForConditionalGeneration": t.Architecture()},
        TRANSLATION,
        stacks=(_stack("encoder"), _stack("decoder")),
        entries=(
            t.fixed("is_encoder_decoder", True),
            t.entry("d_model", WIDTH),
            t.entry("num_layers", ("encoder_layers",)),
            t.entry(
                "num_decoder_layers", ("decoder_layers",), usual=lambda c: c.size("num_layers")
            ),
            t.entry("num_heads", ("encoder_attention_heads", "decoder_attention_heads")),
            t.entry("d_ff", ("encoder_ffn_embed_dim", "decoder_ffn_embed_dim")),
            t.entry("relative_attention_num_buckets", ("t5_num_buckets",), usual=32),
            t.entry("relative_attention_max_distance", ("t5_max_distance",), Config.length, 128),
            t.entry("layer_norm_epsilon", ("layer_norm_eps",), Config.factor, 1e-6),
            rate("dropout_rate", "dropout", "attention_dropout", "activation_dropout", usual=0.1),
            t.fixed("d_kv", lambda s: s["encoder_embed_dim"] // s["encoder_attention_heads"]),
            _GATED_OR_NOT._replace(settings=_form_of),
            longest("n_positions"),
        ),
        always={
            **{**NORMS_FIRST, "position_encoding": "t5", "norm": "rms"},
            **{"no_bias": True, "no_scale_embedding": True},
        },
        values={"feed_forward": ("mlp", "glu", *_GATED), "activation_fn": ACTIVATIONS},
        aliases={
            **{"hidden_size": "d_model", "num_hidden_layers": "num_layers"},
            **{"num_attention_heads": "num_heads", "head_dim": "d_kv"},
        },
        biases={"": None},
        gains={**t.BEHIND, t.LAST_NORM: ()},
        tied=_tied,
        divides=True,
        shared="shared.weight",
        start="<pad>",
    ),
)
