"""``T5ForConditionalGeneration``: T5 bias, RMS norms first, no biases."""

from typing import Any, Dict, Tuple

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.exchange.config import Config
from fairseq_posenc.exchange.huggingface import entries
from fairseq_posenc.exchange.huggingface import table as t
from fairseq_posenc.exchange.huggingface.convert import register_class
from fairseq_posenc.exchange.huggingface.layouts import UNSCALED
from fairseq_posenc.exchange.huggingface.translation import NORMS_FIRST, WIDTH, longest
from fairseq_posenc.models.kinds import TRANSLATION, Settings

#: ``feed_forward_proj`` for our forms that have their own activation.
_GATED = {"swiglu": "gated-silu", "geglu": "gated-gelu_python"}
#: What T5's configuration reads as another name.
_RENAMED = {"gated-gelu": "gated-gelu_new"}
_FORM = "feed_forward_proj"


def _form_of(config: Config, known: Settings) -> Settings:
    """The form of the feed-forward sub-layer, and its activation."""
    form = config.name(_FORM, "relu")
    form = _RENAMED.get(form, form)
    forms = {theirs: ours for ours, theirs in _GATED.items()}
    gate, _, activation = form.rpartition("-")
    if gate not in ("", "gated"):
        raise UsageError(f"{config.path}: {_FORM} {form} is not supported")
    for entry, value in (("dense_act_fn", activation), ("is_gated_act", gate == "gated")):
        config.one_of(entry, value, (value,))  # what the class reads in place of the form
    if form in forms:
        return {"feed_forward": forms[form], "activation_fn": "relu"}
    named = config._replace(entries={_FORM: activation})
    return {
        "feed_forward": "glu" if gate else "mlp",
        "activation_fn": entries.activation_of(named, _FORM),
    }


def _form_entry(settings: Settings, path: str) -> Dict[str, Any]:
    form = _GATED.get(settings["feed_forward"])
    if form is None:
        activation = entries.activation_for(settings["activation_fn"])
        form = activation if settings["feed_forward"] == "mlp" else f"gated-{activation}"
        form = _GATED["geglu"] if form in _RENAMED else form
    return {_FORM: form}


def _gated(settings: Settings, number: int) -> bool:
    return bool(settings["feed_forward"] != "mlp")


def _attention(prefix: str, q: str, k: str, v: str, out: str) -> Tuple[t.Joint, ...]:
    """The projections of T5's attention, which does not scale products."""
    return (t.Joint(prefix + "q", (q,), UNSCALED), *t.joints(prefix, k=k, v=v, o=out))


def _stack(side: str) -> t.Stack:
    cross: Tuple[t.Joint, ...] = ()
    last = "layer.1."
    if side == "decoder":
        of_source = _attention(
            "layer.1.EncDecAttention.", t.CROSS_Q, t.CROSS_K, t.CROSS_V, t.CROSS_OUT
        )
        cross, last = (*of_source, t.Joint("layer.1.layer_norm", (t.CROSS_NORM,))), "layer.2."
    dense, attention = last + "DenseReluDense.", "layer.0.SelfAttention."
    joints = (
        *_attention(attention, t.Q, t.K, t.V, t.OUT),
        t.Joint("layer.0.layer_norm", (t.NORM_1,)),
        *cross,
        t.Joint(
            dense + "wi", (t.FC1,), when=lambda settings, number: settings["feed_forward"] == "mlp"
        ),
        t.Joint(dense + "wi_0", (t.FC1,), when=_gated),
        t.Joint(dense + "wi_1", (t.GATE,), when=_gated),
        t.Joint(dense + "wo", (t.FC2,)),
        t.Joint(last + "layer_norm", (t.NORM_2,)),
    )
    table = f"{side}.block.0.{attention}relative_attention_bias.weight"
    return t.Stack(
        f"{side}.",
        f"{side}.block.{{}}.",
        joints,
        f"{side}.embed_tokens.weight",
        (t.Joint(f"{side}.final_layer_norm", (t.LAST_NORM,)),),
        tensors={"position_bias.t5.table.weight": table},
    )


def _tied(config: Config) -> bool:
    """Whether the output is the embedding; version 5 of the library saves every model as tied."""
    entry = "scale_decoder_outputs"
    if config.entries.get(entry, True) is None:  # the class takes it for false
        raise UsageError(f"{config.path}: {entry} is null; it must be true or false")
    return config.flag(entry, config.flag("tie_word_embeddings", True))


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
            t.entry("relative_attention_max_distance", ("t5_max_distance",), usual=128),
            t.entry("layer_norm_epsilon", ("layer_norm_eps",), Config.factor, 1e-6),
            entries.rate(
                "dropout_rate", "dropout", "attention_dropout", "activation_dropout", usual=0.1
            ),
            t.fixed("d_kv", lambda s: s["encoder_embed_dim"] // s["encoder_attention_heads"]),
            t.Group(_FORM, ("feed_forward",), _form_of, _form_entry),
            longest("n_positions"),
        ),
        always={
            **NORMS_FIRST,
            "position_encoding": "t5",
            "norm": "rms",
            "no_bias": True,
            "no_scale_embedding": True,
        },
        values={"feed_forward": ("mlp", "glu", *_GATED), "activation_fn": entries.ACTIVATIONS},
        aliases={
            "hidden_size": "d_model",
            "num_hidden_layers": "num_layers",
            "num_attention_heads": "num_heads",
            "head_dim": "d_kv",
        },
        biases={"": None},
        gains={**t.BEHIND, t.LAST_NORM: ()},
        tied=_tied,
        divides=True,
        shared="shared.weight",
        start="<pad>",
    ),
)
