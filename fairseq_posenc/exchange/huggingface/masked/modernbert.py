"""ModernBERT in the terms of transformers (Warner et al. 2024, arXiv 2412.13663).

Some layers attend to all tokens, others within a window; each kind has a rotary base of its own.
Layers of ``--attention local`` whose window is wider than the longest text attend to all tokens.
"""

from typing import Any, Collection, Dict, List, Set

from fairseq_posenc.attention.local import numbers
from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.exchange.config import Config
from fairseq_posenc.exchange.huggingface import encoder_heads, joints
from fairseq_posenc.exchange.huggingface import folder as hf
from fairseq_posenc.exchange.huggingface.causal.classes import GATED
from fairseq_posenc.exchange.huggingface.encoder_heads import Architecture
from fairseq_posenc.exchange.huggingface.masked import names
from fairseq_posenc.exchange.huggingface.masked.base import MaskedClass
from fairseq_posenc.exchange.reader import ForeignParameters
from fairseq_posenc.flags.by_layer import number_or_pattern, numbers_by_layer, pattern_of
from fairseq_posenc.models import kinds
from fairseq_posenc.models.kinds import Parameters, Settings

_FULL, _LOCAL = "full_attention", "sliding_attention"
#: config.json's former names of the rotary bases, and their usual values.
_BASES = {_FULL: ("global_rope_theta", 160_000.0), _LOCAL: ("local_rope_theta", 10_000.0)}
_WIDTH, _EVERY = "local_attention", "global_attn_every_n_layers"


class ModernBert(MaskedClass):
    """``ModernBertForMaskedLM``, with or without biases."""

    prefix, model_type, names = "ModernBert", "modernbert", names.MODERNBERT
    lm = {kinds.LM_HEAD + "dense": "head.dense", kinds.LM_HEAD + "layer_norm": "head.norm"}
    lm_bias = ("decoder.bias",)
    read = (
        *("activation_fn", "no_bias", "pooler", "pooler_activation_fn", "segments"),
        *("rotary_base", "rotary_pairing", "local_window"),
    )
    values = {
        "position_encoding": ("rotary",),
        "encoder_normalize_before": (True,),
        "layernorm_embedding": (True,),
        "skip_first_norm": (True,),
        "attention": ("local", "softmax"),
        "feed_forward": (*GATED, "glu"),
    }
    head_values = {"pooler_norm": (True,)}
    sizes = {**MaskedClass.sizes, "max_positions": "max_position_embeddings"}
    epsilon = ("norm_eps", 1e-5)

    def classifier(self, head: str) -> Architecture:
        """See :class:`MaskedClass`."""
        return _head(f"{kinds.CLASSIFICATION_HEADS}{head}.", head)

    def token_classifier(self, head: str) -> Architecture:
        """See :class:`MaskedClass`."""
        return _head(f"{kinds.TOKEN_HEADS}{head}.", head)

    def absent(self, settings: Settings) -> Collection[str]:
        """The norm before the first attention."""
        return ("model.layers.0.attn_norm.weight",)

    def adapted(self, parameters: Parameters, settings: Settings) -> Parameters:
        """Pairs of rotated channels are halves."""
        if settings["rotary_pairing"] == "half":
            return parameters
        size = settings["encoder_embed_dim"] // settings["encoder_attention_heads"]
        return joints.with_halves(parameters, size, size)

    def finish(self, state: ForeignParameters, entries: Dict[str, Any]) -> None:
        """Leave out biases that are zero, which models mostly do not have."""
        of_norms = [name for name in state if name.endswith("norm.bias")]
        for entry, biases in (("norm_bias", of_norms), ("classifier_bias", ["head.dense.bias"])):
            found = [name for name in biases if name in state]
            entries[entry] = any(bool(state[name].any()) for name in found)
            for name in found if not entries[entry] else ():
                del state[name]

    def entries(self, settings: Settings, built: Architecture, path: str) -> Dict[str, Any]:
        """See :class:`MaskedClass`."""
        form, bias = settings["feed_forward"], not settings["no_bias"]
        last = "activation_fn" if built.language_model else "pooler_activation_fn"
        return {
            **super().entries(settings, built, path),
            **_attention(settings, path),
            "hidden_activation": GATED.get(form)
            or hf.activation_for(settings["activation_fn"], path),
            "classifier_activation": hf.activation_for(settings[last], path),
            "classifier_pooling": settings["pooler"],
            "attention_bias": bias,
            "mlp_bias": bias,
            "decoder_bias": True,
            "embedding_dropout": settings["dropout"],
            "attention_dropout": settings["attention_dropout"],
            "mlp_dropout": settings["activation_dropout"],
            "classifier_dropout": settings["pooler_dropout"],
        }

    def settings(self, config: Config, built: Architecture) -> Settings:
        """See :class:`MaskedClass`."""
        last = _activation(config, "classifier_activation")
        form = {theirs: ours for ours, theirs in GATED.items()}.get(
            config.name("hidden_activation", "gelu")
        )
        inner = last if form else _activation(config, "hidden_activation")
        if built.language_model and inner != last:
            raise UsageError(
                f"{config.path}: hidden_activation is {config.entries['hidden_activation']}, and "
                "classifier_activation differs; activations that differ cannot be imported"
            )
        has_bias = [config.flag(name, False) for name in ("attention_bias", "mlp_bias")]
        if built.language_model:
            has_bias.append(config.flag("classifier_bias", False))
        found = super().settings(config, built)
        return {
            **found,
            **_positions(config, found["encoder_layers"], found["max_positions"]),
            "position_encoding": "rotary",
            "rotary_pairing": "half",
            "encoder_normalize_before": True,
            "skip_first_norm": True,
            "no_bias": not any(has_bias),
            "feed_forward": form or "glu",
            "activation_fn": inner,
            "pooler_activation_fn": last,
            "pooler_norm": True,
            "pooler": config.one_of("classifier_pooling", "cls", ("cls", "mean")),
            "dropout": config.fraction("embedding_dropout", 0.0),
            "attention_dropout": config.fraction("attention_dropout", 0.0),
            "activation_dropout": config.fraction("mlp_dropout", 0.0),
            "pooler_dropout": config.fraction("classifier_dropout", 0.0),
        }


def _head(prefix: str, name: str) -> Architecture:
    """Dense, activation, norm, projection."""
    modules = {
        prefix + "dense": "head.dense",
        prefix + "norm": "head.norm",
        prefix + "out_proj": "classifier",
    }
    return Architecture(modules, encoder_heads.LM_SETTINGS, name)


def _activation(config: Config, key: str) -> str:
    """fairseq's name of an activation in config.json."""
    named = config._replace(entries={"hidden_act": config.get(key, "gelu")})
    try:
        return hf.activation_of(named)
    except UsageError as error:
        raise UsageError(error.message.replace("hidden_act", key)) from error


def _attention(settings: Settings, path: str) -> Dict[str, Any]:
    """The entries for the kind of each layer, their windows and their bases.

    Raises:
        UsageError: windows or bases differ between layers of a kind.
    """
    layers, longest = settings["encoder_layers"], settings["max_positions"]
    windows: List[int] = [2 * longest]
    if settings["attention"] == "local":
        windows = numbers("--local-window", settings["local_window"], 2, even=True)
    bases = numbers_by_layer("rotary_base", settings["rotary_base"])
    types = [_kind(windows[n % len(windows)], longest) for n in range(layers)]
    widths: Set[int] = set()
    found: Dict[str, Set[float]] = {_FULL: set(), _LOCAL: set()}
    for number, kind in enumerate(types):
        found[kind].add(bases[number % len(bases)])
        if kind == _LOCAL:
            widths.add(windows[number % len(windows)])
    if len(widths) > 1:
        raise UsageError(
            f"{path}: --local-window {settings['local_window']}: the class has one window, and "
            f"layers that attend to all tokens, whose window is {2 * longest - 2} or more here"
        )
    if max(map(len, found.values())) > 1:
        raise UsageError(
            f"{path}: --rotary-base {settings['rotary_base']}: the class has one base for layers "
            "with windows, and one for the others"
        )
    entries: Dict[str, Any] = {"layer_types": types}
    if widths:
        entries[_WIDTH] = widths.pop()
    for kind, (former, usual) in _BASES.items():
        entries[former] = found[kind].pop() if found[kind] else usual
    every = next((n for n in range(1, layers + 1) if _every(n, layers) == types), None)
    return entries if every is None else {**entries, _EVERY: every}  # read by versions before 5


def _kind(window: int, longest: int) -> str:
    return _FULL if window // 2 >= longest - 1 else _LOCAL


def _every(step: int, layers: int) -> List[str]:
    return [_LOCAL if number % step else _FULL for number in range(layers)]


def _positions(config: Config, layers: int, longest: int) -> Settings:
    """The flags of windows and bases by layer."""
    types: Any = config.get("layer_types", _every(config.size(_EVERY, 3), layers))
    listed = isinstance(types, list) and all(kind in (_FULL, _LOCAL) for kind in types)
    if not listed or len(types) != layers:
        raise UsageError(
            f"{config.path}: layer_types is {types!r}; it must have {_FULL} or {_LOCAL} for each "
            f"of {layers} layers"
        )
    width = 2 * (config.size(_WIDTH, 128) // 2)
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
    """The rotary base of a kind of layers."""
    former, usual = _BASES[kind]
    nested = config.group("rope_parameters").group(kind)
    nested.one_of("rope_type", "default", ("default",))
    for each in (config, nested):
        each.one_of("partial_rotary_factor", 1.0, (1.0,))
    config.one_of("rope_scaling", None, (None,))
    if kind == _LOCAL and former in config.entries and config.entries[former] is None:
        usual = _base(config, _FULL)  # null stands for that of the others
    base = nested.factor("rope_theta", config.factor(former, usual))
    config.one_of(former, base, (base,))
    return base
