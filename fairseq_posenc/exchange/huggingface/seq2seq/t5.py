"""``T5ForConditionalGeneration``: T5 bias, RMS norms first, no biases; and all classes by name."""

from typing import Any, Dict, Tuple

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.exchange.config import Config
from fairseq_posenc.exchange.huggingface import folder as hf
from fairseq_posenc.exchange.huggingface.names import (
    FC1,
    FC2,
    GATE,
    NORM_1,
    NORM_2,
    OUT,
    Joint,
    K,
    Q,
    V,
)
from fairseq_posenc.exchange.huggingface.seq2seq.classes import (
    LENGTHS,
    M2M100,
    NORMS_FIRST,
    Bart,
    Marian,
    MBart,
    Seq2SeqClass,
)
from fairseq_posenc.exchange.huggingface.seq2seq.names import (
    CROSS_K,
    CROSS_NORM,
    CROSS_OUT,
    CROSS_Q,
    CROSS_V,
    UNSCALED,
)
from fairseq_posenc.flags.options import SIDES
from fairseq_posenc.models.kinds import Settings

#: ``feed_forward_proj`` for our forms that have their own activation.
_GATED = {"swiglu": "gated-silu", "geglu": "gated-gelu_python"}
#: What T5's configuration reads as another name.
_RENAMED = {"gated-gelu": "gated-gelu_new"}


class T5(Seq2SeqClass):
    """``T5ForConditionalGeneration``."""

    architecture, model_type = "T5ForConditionalGeneration", "t5"
    layers = {side: f"{side}.block.{{}}." for side in SIDES}
    norms = {f"{side}.layer_norm": f"{side}.final_layer_norm" for side in SIDES}
    shared, bias, biased, gainless = "shared.weight", None, False, True
    apart = {side: f"{side}.embed_tokens.weight" for side in SIDES}
    start = "<pad>"
    tables = {
        side: f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        for side in SIDES
    }
    read = ("activation_fn", "t5_num_buckets", "t5_max_distance", "layer_norm_eps")
    encodings = ("t5",)
    values = {
        **NORMS_FIRST,
        "norm": ("rms",),
        "no_bias": (True,),
        "feed_forward": ("mlp", "glu", *_GATED),
    }
    sizes = {
        "encoder_embed_dim": "d_model",
        "encoder_layers": "num_layers",
        "decoder_layers": "num_decoder_layers",
        "encoder_attention_heads": "num_heads",
        "encoder_ffn_embed_dim": "d_ff",
        "t5_num_buckets": "relative_attention_num_buckets",
        "t5_max_distance": "relative_attention_max_distance",
    }
    equal = (
        *Seq2SeqClass.equal,
        ("encoder_attention_heads", "decoder_attention_heads"),
        ("encoder_ffn_embed_dim", "decoder_ffn_embed_dim"),
    )
    aliases = {
        "hidden_size": "d_model",
        "num_hidden_layers": "num_layers",
        "num_attention_heads": "num_heads",
        "head_dim": "d_kv",
    }
    longest = ("n_positions", 1024)

    def joints(self, side: str, settings: Settings) -> Tuple[Joint, ...]:
        """See :class:`Seq2SeqClass`."""
        first, last = "layer.0.", "layer.2." if side == "decoder" else "layer.1."
        dense, gated = f"{last}DenseReluDense.", settings["feed_forward"] != "mlp"
        joints = [
            *_attention(first + "SelfAttention.", (Q, K, V, OUT)),
            Joint(first + "layer_norm", (NORM_1,)),
            Joint(f"{dense}wi_0" if gated else f"{dense}wi", (FC1,)),
            *([Joint(f"{dense}wi_1", (GATE,))] if gated else []),
            Joint(dense + "wo", (FC2,)),
            Joint(last + "layer_norm", (NORM_2,)),
        ]
        if side == "decoder":
            of_source = (CROSS_Q, CROSS_K, CROSS_V, CROSS_OUT)
            joints += _attention("layer.1.EncDecAttention.", of_source)
            joints.append(Joint("layer.1.layer_norm", (CROSS_NORM,)))
        return tuple(joints)

    def tied(self, config: Config) -> bool:
        """See :class:`Seq2SeqClass`; version 5 of the library saves every model as a tied one."""
        entry = "scale_decoder_outputs"
        if config.entries.get(entry, True) is None:  # the class takes it for false
            raise UsageError(f"{config.path}: {entry} is null; it must be true or false")
        return config.flag(entry, super().tied(config))

    def entries(self, settings: Settings, path: str) -> Dict[str, Any]:
        """See :class:`Seq2SeqClass`."""
        form = _GATED.get(settings["feed_forward"])
        if form is None:
            activation = hf.activation_for(settings["activation_fn"], path)
            form = activation if settings["feed_forward"] == "mlp" else f"gated-{activation}"
            form = _GATED["geglu"] if form in _RENAMED else form
        return {
            **{theirs: settings[ours] for ours, theirs in self.sizes.items()},
            "d_kv": settings["encoder_embed_dim"] // settings["encoder_attention_heads"],
            "feed_forward_proj": form,
            "layer_norm_epsilon": settings["layer_norm_eps"],
            "dropout_rate": settings["dropout"],
            "n_positions": max(settings[name] for name in LENGTHS),
        }

    def settings(self, config: Config) -> Settings:
        """See :class:`Seq2SeqClass`."""
        config.one_of("is_encoder_decoder", True, (True,))
        usual = {"num_decoder_layers": config.size("num_layers")}
        usual.update(relative_attention_num_buckets=32, relative_attention_max_distance=128)
        given = {name: value for name, value in config.entries.items() if value is not None}
        config = config._replace(entries={**usual, **given})
        found: Settings = config.sizes(self.sizes)
        for first, *others in self.equal:
            found.update(dict.fromkeys(others, found[first]))
        size = found["encoder_embed_dim"] // found["encoder_attention_heads"]
        config.one_of("d_kv", size, (size,))
        rate = config.fraction("dropout_rate", 0.1)
        return {
            **found,
            **_feed_forward(config),
            **dict.fromkeys((*NORMS_FIRST, "no_bias", "no_scale_embedding"), True),
            "norm": "rms",
            "position_encoding": "t5",
            "layer_norm_eps": config.factor("layer_norm_epsilon", 1e-6),
            **dict.fromkeys(("dropout", "attention_dropout", "activation_dropout"), rate),
            **dict.fromkeys(LENGTHS, config.length(*self.longest)),
        }


def _attention(prefix: str, ours: Tuple[str, ...]) -> Tuple[Joint, ...]:
    """The projections of T5's attention, which does not scale products."""
    first, *others = (Joint(prefix + name, (mine,)) for name, mine in zip("qkvo", ours))
    return (first._replace(layout=UNSCALED), *others)


def _feed_forward(config: Config) -> Settings:
    """The form of the feed-forward sub-layer, and its activation."""
    form = config.name("feed_forward_proj", "relu")
    form = _RENAMED.get(form, form)
    known = {theirs: ours for ours, theirs in _GATED.items()}
    gate, _, activation = form.rpartition("-")
    if gate not in ("", "gated"):
        raise UsageError(f"{config.path}: feed_forward_proj {form} is not supported")
    for entry, value in (("dense_act_fn", activation), ("is_gated_act", gate == "gated")):
        config.one_of(entry, value, (value,))  # what the class reads in place of the form
    if form in known:
        return {"feed_forward": known[form], "activation_fn": "relu"}
    named = config._replace(entries={"feed_forward_proj": activation})
    return {
        "feed_forward": "glu" if gate else "mlp",
        "activation_fn": hf.activation_of(named, "feed_forward_proj"),
    }


#: The classes by the names of their formats.
CLASSES: Dict[str, Seq2SeqClass] = {
    "hf-marian": Marian(),
    "hf-bart": Bart(),
    "hf-mbart": MBart(),
    "hf-m2m100": M2M100(),
    "hf-t5": T5(),
}
