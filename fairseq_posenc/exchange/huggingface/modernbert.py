"""``ModernBertForMaskedLM`` and its classifiers (Warner et al. 2024, arXiv 2412.13663).

They have rotary positions, pre-norm layers and gated feed-forwards.  Some layers attend to all
tokens, others within a window; each of these two kinds has its own rotary base.  A layer of
``--attention local`` attends to all tokens if its window covers the longest text.
"""

from typing import Any, Dict, List

from fairseq_posenc.attention.local import numbers
from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.exchange.huggingface import masked
from fairseq_posenc.exchange.huggingface import table as t
from fairseq_posenc.exchange.huggingface.convert import register_class
from fairseq_posenc.exchange.huggingface.entries import (
    ACTIVATIONS,
    GATED,
    activation_for,
    activation_of,
    biases,
    gated_activation,
    rate,
    written,
)
from fairseq_posenc.exchange.reader import Config, ForeignParameters
from fairseq_posenc.flags.by_layer import number_or_pattern, numbers_by_layer, pattern_of
from fairseq_posenc.models.kinds import ENCODER, MASKED, Settings

_FULL, _LOCAL = "full_attention", "sliding_attention"
#: The former names of the rotary bases in config.json, and their defaults.
_BASES = {_FULL: ("global_rope_theta", 160_000.0), _LOCAL: ("local_rope_theta", 10_000.0)}
_WIDTH, _EVERY = "local_attention", "global_attn_every_n_layers"
_LAST, _BIASES = "classifier_activation", ("attention_bias", "mlp_bias")
#: The modules of a sequence classifier or a token classifier.
_HEAD = {"dense": "head.dense", "norm": "head.norm", "out_proj": "classifier"}


def _last(ours: str) -> t.Group:
    """The entry for the activation before the last projection; *ours* is the setting for it.

    Our output layer uses ``activation_fn``, as do feed-forwards that have no fixed activation.
    """

    def settings(config: Config, known: Settings) -> Settings:
        last = activation_of(config, _LAST)
        of_layers = known.get("activation_fn", last)
        if ours == "activation_fn" and of_layers != last:
            raise UsageError(
                f"{config.path}: hidden_activation is {config.entries['hidden_activation']}, but "
                f"{_LAST} differs; an import needs the same activation in both"
            )
        return {"activation_fn": of_layers, "pooler_activation_fn": last}

    return t.Group(_LAST, (ours,), settings, lambda s, path: {_LAST: activation_for(s[ours])})


def _leave_out_zeros(state: ForeignParameters, entries: Dict[str, Any]) -> None:
    """Leave out biases that are zero, because most models of this class have none."""
    of_norms = [name for name in state if name.endswith("norm.bias")]
    for entry, names in (("norm_bias", of_norms), ("classifier_bias", ["head.dense.bias"])):
        present = [name for name in names if name in state]
        entries[entry] = any(bool(state[name].any()) for name in present)
        for name in present if not entries[entry] else ():
            del state[name]


def _attention(settings: Settings, path: str) -> Dict[str, Any]:
    """The entries for the kinds of layers, for the window and for the rotary bases."""
    layers, longest = settings["encoder_layers"], settings["max_positions"]
    windows: List[int] = [2 * longest]
    if settings["attention"] == "local":
        windows = numbers("--local-window", settings["local_window"], 2, even=True)
    bases = numbers_by_layer("rotary_base", settings["rotary_base"])
    by_layer = [windows[number % len(windows)] for number in range(layers)]
    types = [_FULL if window // 2 >= longest - 1 else _LOCAL for window in by_layer]
    widths = {width for width, kind in zip(by_layer, types) if kind == _LOCAL}
    if len(widths) > 1:
        raise UsageError(
            f"{path}: --local-window {settings['local_window']}: the class has one window "
            f"size; other windows must cover the whole text (here {2 * longest - 2} or more)"
        )
    entries: Dict[str, Any] = {"layer_types": types, **({_WIDTH: min(widths)} if widths else {})}
    for kind, (former, usual) in _BASES.items():
        found = {bases[n % len(bases)] for n in range(layers) if types[n] == kind} or {usual}
        if len(found) > 1:
            raise UsageError(
                f"{path}: --rotary-base {settings['rotary_base']}: the class has one base for "
                "layers with windows, and one for layers without"
            )
        entries[former] = found.pop()
    every = next((n for n in range(1, layers + 1) if _every(n, layers) == types), None)
    return entries if every is None else {**entries, _EVERY: every}  # for versions before 5


def _every(step: int, layers: int) -> List[str]:
    return [_LOCAL if number % step else _FULL for number in range(layers)]


def _positions(config: Config, known: Settings) -> Settings:
    """The settings for the window and the rotary base of each layer."""
    layers, longest = known["encoder_layers"], known["max_positions"]
    types: Any = config.get("layer_types", _every(config.length(_EVERY, 3), layers))
    listed = isinstance(types, list) and all(kind in (_FULL, _LOCAL) for kind in types)
    if not listed or len(types) != layers:
        raise UsageError(
            f"{config.path}: layer_types is {types!r}; it must have {_FULL} or {_LOCAL} for each "
            f"of {layers} layers"
        )
    width = 2 * (config.length(_WIDTH, 128) // 2)
    windows = [2 * longest if kind == _FULL else max(width, 2) for kind in types]
    bases = {kind: _base(config, kind) for kind in _BASES}
    settings: Settings = {
        "attention": "local",
        "local_window": pattern_of(windows),
        "rotary_base": number_or_pattern(pattern_of([bases[kind] for kind in types])),
    }
    if _LOCAL not in types:
        settings.update(attention="softmax", local_window="512")
    return settings


def _base(config: Config, kind: str) -> float:
    """The rotary base of the layers of one *kind*."""
    former, usual = _BASES[kind]
    nested = config.group("rope_parameters").group(kind)
    nested.one_of("rope_type", "default", ("default",))
    for each in (config, nested):
        each.one_of("partial_rotary_factor", 1.0, (1.0,))
    config.one_of("rope_scaling", None, (None,))
    if kind == _LOCAL and former in config.entries and config.entries[former] is None:
        usual = _base(config, _FULL)  # null means the base of the other kind
    base = nested.factor("rope_theta", config.factor(former, usual))
    config.one_of(former, base, (base,))
    return base


register_class(
    "hf-modernbert",
    t.TransformersClass(
        "modernbert",
        {
            "ModernBertForMaskedLM": masked.output(
                {"dense": "head.dense", "layer_norm": "head.norm"},
                entries=(
                    _last("activation_fn"),
                    biases(*_BIASES, also=("classifier_bias",)),
                ),
            ),
            **masked.classifiers(
                _HEAD,
                _HEAD,
                "ModernBert",
                values={"pooler_activation_fn": ACTIVATIONS},
                entries=(_last("pooler_activation_fn"), biases(*_BIASES)),
            ),
        },
        MASKED,
        stacks=(
            t.Stack(
                ENCODER,
                "model.layers.{}.",
                (
                    t.Joint("attn_norm", (t.NORM_1,), when=lambda settings, number: number > 0),
                    t.Joint("attn.Wqkv", (t.Q, t.K, t.V), t.IN_ROWS),
                    t.Joint("attn.Wo", (t.OUT,)),
                    t.Joint("mlp_norm", (t.NORM_2,)),
                    t.Joint("mlp.Wi", (t.FC1, t.GATE), t.IN_ROWS),
                    t.Joint("mlp.Wo", (t.FC2,)),
                ),
                "model.embeddings.tok_embeddings.weight",
                (
                    t.Joint("model.embeddings.norm", ("layernorm_embedding",)),
                    t.Joint("model.final_norm", (t.LAST_NORM,)),
                ),
            ),
        ),
        entries=(
            masked.HIDDEN_SIZE,
            *masked.sizes(),
            *masked.ENCODERS,
            t.entry("max_position_embeddings", ("max_positions",), Config.length),
            t.entry("norm_eps", ("layer_norm_eps",), Config.factor, 1e-5),
            gated_activation("hidden_activation", "gelu"),
            t.choice("classifier_pooling", ("pooler",), "cls", ("cls", "mean")),
            rate("embedding_dropout", "dropout"),
            rate("attention_dropout", "attention_dropout"),
            rate("mlp_dropout", "activation_dropout"),
            rate("classifier_dropout", "pooler_dropout"),
            written("decoder_bias", lambda settings: True),
            t.Group("layer_types", ("local_window", "rotary_base"), _positions, _attention),
        ),
        always={
            "position_encoding": "rotary",
            "rotary_pairing": "half",
            "encoder_normalize_before": True,
            "layernorm_embedding": True,
            "skip_first_norm": True,
            "pooler_norm": True,
        },
        values={
            "attention": ("local", "softmax"),
            "feed_forward": (*GATED, "glu"),
            "activation_fn": ACTIVATIONS,
        },
        output="decoder.weight",
        output_biases=("decoder.bias",),
        biases={
            "attn.": ("attention_bias", False),
            "mlp.": ("mlp_bias", False),
            "head.dense": ("classifier_bias", False),
            "decoder": ("decoder_bias", True),
            **dict.fromkeys(("attn_norm", "mlp_norm", "model.", "head.norm"), ("norm_bias", False)),
        },
        before_writing=_leave_out_zeros,
    ),
)
