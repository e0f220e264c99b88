"""Tables of the classes of transformers for translation; all but T5 have BART's layers.

Marian's own sinusoids, norms last                                MarianMTModel
learned positions, norm of the embeddings, norms last             BartForConditionalGeneration
learned positions, norm of the embeddings, norms first            MBartForConditionalGeneration
sinusoidal positions, norms first                                 M2M100ForConditionalGeneration
T5 bias, RMS norms first, no biases                               T5ForConditionalGeneration
"""

from operator import not_
from types import MappingProxyType
from typing import Any, Iterator, Mapping, Optional, Tuple

import torch
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.exchange.huggingface import table as t
from fairseq_posenc.exchange.huggingface.convert import register_class
from fairseq_posenc.exchange.huggingface.entries import (
    ACTIVATIONS,
    activation,
    gated_activation,
    rate,
)
from fairseq_posenc.exchange.reader import Config
from fairseq_posenc.flags.options import SIDES
from fairseq_posenc.models.kinds import PAD, TRANSLATION, Settings

#: The settings for the longest text, and for numbers of channels (equal on both sides).
LENGTHS = ("max_source_positions", "max_target_positions")
WIDTH = ("encoder_embed_dim", "decoder_embed_dim", "decoder_input_dim", "decoder_output_dim")
NORMS_FIRST: Settings = {f"{side}_normalize_before": True for side in SIDES}
#: Modules of the layers; their names in the classes are our names.
_SELF = t.same(t.Q, t.K, t.V, t.OUT, t.NORM_1)
_CROSS = t.same(t.CROSS_Q, t.CROSS_K, t.CROSS_V, t.CROSS_OUT, t.CROSS_NORM)
_LAST = t.same(t.FC1, t.FC2, t.NORM_2)


def longest(theirs: str) -> t.Group:
    """The entry for the longest text; an export writes the larger limit of the two sides."""
    return t.Group(
        theirs,
        LENGTHS,
        lambda config, known: dict.fromkeys(LENGTHS, config.length(theirs, 1024)),
        lambda settings, path: {theirs: max(settings[name] for name in LENGTHS)},
    )


def marian_sinusoids(rows: int, channels: int) -> Tensor:
    """Marian's table (rows, C): sin(i / 10000^(2k/C)) for all k, then cosines; i starts at 0."""
    even = torch.arange(0, channels, 2, dtype=torch.float64)
    angles = torch.arange(rows, dtype=torch.float64)[:, None] / 10000.0 ** (even / channels)
    return torch.cat((angles.sin(), angles.cos()), dim=1).float()[:, :channels]


#: The dropout rates, whose names are the same in config.json and here.
RATES = (
    *("dropout", "attention_dropout", "activation_dropout"),
    *(f"{side}_layerdrop" for side in SIDES),
)


def _stack(side: str, *norms: str, first: Optional[int] = None, computed: Any = None) -> t.Stack:
    """The description of an encoder or a decoder.

    Args:
        norms: the names of the norms outside of the layers.
        first: the row of the first position in the table of positions, if there is such a table.
        computed: the function that computes the table of positions, if the class does not save it.
    """
    cross = _CROSS if side == "decoder" else ()
    outside = tuple(t.Joint(f"model.{side}.{name}", (name,)) for name in norms)
    layers, embedding = f"model.{side}.layers.{{}}.", f"model.{side}.embed_tokens.weight"
    table = None
    if first is not None:
        name, row = f"model.{side}.embed_positions.weight", first
        table = t.Table(name, lambda config: row, computed)
    return t.Stack(f"{side}.", layers, (*_SELF, *cross, *_LAST), embedding, outside, table)


def _entries(
    *more: t.Group,
    act: str = "gelu",
    scaled: bool = False,
    rates: Mapping[str, float] = MappingProxyType({"dropout": 0.1}),
) -> Tuple[t.Group, ...]:
    """The entries of BART and of similar classes.

    Args:
        act: the default activation.
        scaled: whether embeddings are multiplied by √C by default.
        rates: the default dropout rates that are not 0.
    """
    sizes = {"layers": "layers", "attention_heads": "attention_heads", "ffn_dim": "ffn_embed_dim"}
    return (
        t.fixed("is_encoder_decoder", True),
        t.entry("d_model", WIDTH),
        *(t.entry(f"{s}_{name}", (f"{s}_{sizes[name]}",)) for s in SIDES for name in sizes),
        activation("activation_function", usual=act),
        t.entry("scale_embedding", ("no_scale_embedding",), Config.flag, scaled, not_, not_),
        longest("max_position_embeddings"),
        *(rate(name, name, usual=rates.get(name, 0.0)) for name in RATES),
        *more,
    )


def _of_old_files(first: bool, normed: bool) -> Iterator[t.Group]:
    """The entries about norms in old files of classes like BART."""
    yield t.fixed("normalize_before", first, written=False)
    yield t.fixed("add_final_layer_norm", first, written=False)
    yield t.fixed("normalize_embedding", normed, written=False)


def _refuse_padding(config: Config, known: Settings) -> Settings:
    """Refuse translations that begin with padding, which has no position in the class."""
    if config.get("decoder_start_token_id", None) == PAD:
        raise UsageError(
            f"{config.path}: decoder_start_token_id is {PAD}, the number of padding; a "
            "translation cannot begin with padding, which has no position in this class"
        )
    return {}


MARIAN = t.TransformersClass(
    "marian",
    {"MarianMTModel": t.Architecture()},
    TRANSLATION,
    stacks=tuple(_stack(side, first=0, computed=marian_sinusoids) for side in SIDES),
    entries=_entries(*_of_old_files(False, False)),
    always={},
    values={"position_encoding": ("sinusoidal", "learned", "none"), "activation_fn": ACTIVATIONS},
    any=("no_bias",),
    aliases={
        "hidden_size": "d_model",
        "num_hidden_layers": "encoder_layers",
        "num_attention_heads": "encoder_attention_heads",
    },
    output_biases=("final_logits_bias",),
    shared="model.shared.weight",
    two_embeddings=True,
    start="<pad>",
    computed=("final_logits_bias", *(f"model.{side}.embed_positions.weight" for side in SIDES)),
)
BART = MARIAN._replace(
    model_type="bart",
    architectures={"BartForConditionalGeneration": t.Architecture()},
    stacks=tuple(_stack(side, "layernorm_embedding", first=2) for side in SIDES),
    entries=_entries(*_of_old_files(False, True)),
    always={"layernorm_embedding": True},
    two_embeddings=False,
    start="</s>",
)
MBART = BART._replace(
    model_type="mbart",
    architectures={"MBartForConditionalGeneration": t.Architecture()},
    stacks=tuple(_stack(side, "layernorm_embedding", t.LAST_NORM, first=2) for side in SIDES),
    entries=_entries(*_of_old_files(True, True)),
    always={**BART.always, **NORMS_FIRST},
)
M2M100 = MBART._replace(
    model_type="m2m_100",
    architectures={"M2M100ForConditionalGeneration": t.Architecture()},
    stacks=tuple(_stack(side, t.LAST_NORM) for side in SIDES),
    # the first position is numbered one above padding, which itself has no position
    entries=_entries(
        t.fixed("pad_token_id", PAD, written=False),
        t.Group("decoder_start_token_id", (), _refuse_padding, lambda settings, path: {}),
        act="relu",
        scaled=True,
        rates={**dict.fromkeys(RATES[:2], 0.1), **dict.fromkeys(RATES[3:], 0.05)},
    ),
    always={**NORMS_FIRST, "position_encoding": "sinusoidal"},
    values={"activation_fn": ACTIVATIONS},
    output_biases=(),
)


#: Our name of T5's table of biases in each stack.
_TABLE = "position_bias.t5.table"
_FORM, _SCALES = "feed_forward_proj", "scale_decoder_outputs"
_GATED = {"swiglu": "silu", "geglu": "gelu_python"}
_GATED_OR_NOT = gated_activation(_FORM, "relu", "gated-", _GATED)


def _form_of(config: Config, known: Settings) -> Settings:
    form = config.name(_FORM, "relu")
    form = "gated-gelu_new" if form == "gated-gelu" else form  # as the class reads it
    gate, _, activation = form.rpartition("-")
    for entry, value in (("dense_act_fn", activation), ("is_gated_act", gate == "gated")):
        config.one_of(entry, value, (value,))  # the class reads these instead of the form
    return _GATED_OR_NOT.settings(config._replace(entries={_FORM: form}), known)


def _t5_tied(config: Config) -> bool:
    """Whether the output is tied to the embedding; transformers 5 saves every model as tied."""
    if config.entries.get(_SCALES, True) is None:  # the class reads null as false
        raise UsageError(f"{config.path}: {_SCALES} is null; it must be true or false")
    return config.flag(_SCALES, config.flag("tie_word_embeddings", True))


def _t5_stack(side: str) -> t.Stack:
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


T5 = t.TransformersClass(
    "t5",
    {"T5ForConditionalGeneration": t.Architecture()},
    TRANSLATION,
    stacks=(_t5_stack("encoder"), _t5_stack("decoder")),
    entries=(
        t.fixed("is_encoder_decoder", True),
        t.entry("d_model", WIDTH),
        t.entry("num_layers", ("encoder_layers",)),
        t.entry("num_decoder_layers", ("decoder_layers",), usual=lambda c: c.size("num_layers")),
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
    tied=_t5_tied,
    divides=True,
    shared="shared.weight",
    start="<pad>",
)
register_class("hf-marian", MARIAN)
register_class("hf-bart", BART)
register_class("hf-mbart", MBART)
register_class("hf-m2m100", M2M100)
register_class("hf-t5", T5)
