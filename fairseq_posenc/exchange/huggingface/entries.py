"""Conversion between config.json of a model class in transformers and our settings and labels.

The table of a class lists the settings that the class can represent.  Every other setting that
changes the outputs of a model must have its default.
"""

import os
from typing import Any, Callable, Dict, List, Mapping, Set, Tuple

from fairseq_posenc.basics.errors import UsageError, flag_of
from fairseq_posenc.checkpoints.loader import named_labels
from fairseq_posenc.exchange.formats import Expressible
from fairseq_posenc.exchange.huggingface.table import Architecture, Group, TransformersClass, entry
from fairseq_posenc.exchange.native import NativeCheckpoint
from fairseq_posenc.exchange.reader import Config, ForeignParameters
from fairseq_posenc.flags.options import SIDES, option
from fairseq_posenc.models.kinds import TRANSLATION, Settings
from fairseq_posenc.serving.transformers_tokenizer import RESERVED

#: Settings that follow from the parameters, or that do not change what a model computes.
_READ = (
    *("share_decoder_input_output_embed", "share_all_embeddings", "merge_src_tgt_embed"),
    *("untie_weights_roberta", "no_scale_embedding", "no_token_positional_embeddings"),
    "rotary_pairing",
    *("decoder_learned_pos", "encoder_learned_pos", "num_positions", "segments"),
    *("rotary_scaling_factor", "rotary_original_length"),  # matter only with --rotary-scaling
)

#: Pairs of transformers' and fairseq's names of activations; of a name's pairs, the first counts.
_ACTIVATIONS = (
    ("gelu", "gelu"),
    ("relu", "relu"),
    ("tanh", "tanh"),
    ("linear", "linear"),
    ("gelu_new", "gelu_accurate"),
    ("gelu_new", "gelu_fast"),
    ("gelu_fast", "gelu_accurate"),
    ("gelu_pytorch_tanh", "gelu_accurate"),
    ("gelu_python", "gelu"),
)
#: fairseq's names of the activations that transformers also has.
ACTIVATIONS = tuple(dict.fromkeys(ours for _, ours in _ACTIVATIONS))
#: Gated feed-forwards with a fixed activation, each with transformers' name of the activation.
GATED = {"swiglu": "silu", "geglu": "gelu"}


def settings_of(source: TransformersClass, built: Architecture, config: Config) -> Settings:
    """Convert config.json to settings; a UsageError names an entry that is wrong."""
    settings: Settings = dict(source.always)
    theirs: Dict[str, str] = {}
    for each in (*source.entries, *built.entries):
        settings.update(each.settings(config, settings))
        theirs.update(dict.fromkeys(each.ours, each.theirs))
    settings = {ours: x(settings) if callable(x) else x for ours, x in settings.items()}
    for ours, values in built.values.items():
        if ours in settings and settings[ours] not in values:
            raise UsageError(
                f"{config.path}: {theirs[ours]} is {config.get(theirs[ours], None)}, which means "
                f"{flag_of(ours)} {settings[ours]}; the class only has {', '.join(values)}"
            )
    _check_heads(source, settings, config, theirs)
    return settings


def _check_heads(
    source: TransformersClass, settings: Settings, config: Config, theirs: Mapping[str, str]
) -> None:
    """Refuse heads that do not divide the channels, and a ``head_dim`` other than C / H."""
    for stack in source.stacks:
        heads, width = (f"{stack.side}_{name}" for name in ("attention_heads", "embed_dim"))
        if heads not in settings:  # gated attention has no heads
            continue
        if settings[width] % settings[heads]:
            raise UsageError(
                f"{config.path}: {theirs[heads]} is {settings[heads]}, which does not divide "
                f"{theirs[width]}, {settings[width]}"
            )
        part = settings[width] // settings[heads]
        config.one_of("head_dim", part, (part,))


def entries_of(
    target: TransformersClass, built: Architecture, settings: Settings, path: str
) -> Dict[str, Any]:
    """The entries of config.json for complete settings that the class can represent."""
    found: Dict[str, Any] = {}
    for each in (*target.entries, *built.entries):
        found.update(each.entries(settings, path))
    return found


def expressible(
    target: TransformersClass, name: str, built: Architecture, settings: Settings
) -> Expressible:
    """The settings that a class can represent, and their values."""
    values: Dict[str, Any] = {
        ours: (x(settings) if callable(x) else x,) for ours, x in target.always.items()
    }
    known: Set[str] = {*_READ, *target.any}
    for each in (*target.entries, *built.entries):
        known.update(each.ours)
        for other in each.equal:
            known.discard(other)
            values[other] = (settings.get(each.ours[0]),)
    values.update({**target.values, **built.values})
    if target.kind is TRANSLATION:
        encodings = values["position_encoding"]
        values.update({f"{side}_position_encoding": (None, *encodings) for side in SIDES})
    known -= {*target.values, *built.values}
    return Expressible(f"{name} of transformers", {*known, *built.any}, values)


def activation_of(config: Config, entry: str = "hidden_act", usual: str = "gelu") -> str:
    """fairseq's name for the activation in an entry; a UsageError lists the supported names."""
    theirs = config.get(entry, usual)
    known = dict(reversed(_ACTIVATIONS))  # the first of two pairs counts
    if not isinstance(theirs, str) or theirs not in known:
        raise UsageError(
            f"{config.path}: {entry} {theirs!r} is not an activation that fairseq has "
            f"({', '.join(sorted(known))})"
        )
    return known[theirs]


def activation_for(ours: str) -> str:
    """transformers' name for one of :data:`ACTIVATIONS`."""
    return next(theirs for theirs, known in _ACTIVATIONS if known == ours)


def activation(theirs: str, *ours: str, usual: str = "gelu") -> Group:
    """The entry of an activation; arguments as for :func:`entry`."""
    return entry(theirs, ours or ("activation_fn",), activation_of, usual, back=activation_for)


def gated_activation(
    theirs: str, usual: str, gate: str = "", named: Mapping[str, str] = GATED
) -> Group:
    """The entry that determines both the activation and the form of the feed-forward.

    Args:
        gate: the prefix of values for gated forms; values without it mean forms without a gate.
        named: our forms with a fixed activation, each with the class's name of the activation.
    """
    forms = {gate + name: form for form, name in named.items()}

    def settings(config: Config, known: Settings) -> Settings:
        name = config.name(theirs, usual)
        if name in forms:
            return {"feed_forward": forms[name]}
        gated = name.startswith(gate)
        inner = config._replace(entries={theirs: name[len(gate) :] if gated else name})
        return {
            "feed_forward": "glu" if gated else "mlp",
            "activation_fn": activation_of(inner, theirs),
        }

    def entries(known: Settings, path: str) -> Dict[str, Any]:
        form, ours = known["feed_forward"], known["activation_fn"]
        same = "geglu" if (form, ours) == ("glu", "gelu") else form
        name = named.get(same) or activation_for(ours)
        return {theirs: name if form == "mlp" else gate + name}

    return Group(theirs, ("feed_forward",), settings, entries)


def biases(*theirs: str, also: Tuple[str, ...] = ()) -> Group:
    """Entries that say whether modules have biases; in our models, all or none have biases.

    Args:
        also: further such entries, which are read but not written.
    """

    def settings(config: Config, known: Settings) -> Settings:
        flags = [config.flag(name, False) for name in (*theirs, *also)]
        return {"no_bias": not any(flags)}

    def entries(known: Settings, path: str) -> Dict[str, Any]:
        return dict.fromkeys(theirs, not known["no_bias"])

    return Group(theirs[0], ("no_bias",), settings, entries)


def rate(theirs: str, *ours: str, usual: Any = 0.0) -> Group:
    """The entry of a dropout rate; arguments as for :func:`entry`."""
    return entry(theirs, ours, Config.fraction, usual, back=float)


def written(theirs: str, value: Callable[[Settings], Any]) -> Group:
    """An entry that is written but not read; *value* computes it from the settings."""
    return Group(theirs, (), lambda config, known: {}, lambda known, path: {theirs: value(known)})


def label_entries(
    checkpoint: NativeCheckpoint, head: str, built: Architecture, state: ForeignParameters
) -> Dict[str, Any]:
    """The entries of config.json that name the classes of a head.

    The names come from ``label/dict.txt`` in the training data; without it, they are ``LABEL_0``,
    ``LABEL_1`` and so on.

    Raises:
        UsageError: ``label/dict.txt`` has fewer names than the head has classes.
    """
    labels: List[str] = []
    regression = option(checkpoint.task, "regression_target", False)  # numbers in place of classes
    last = next(theirs for name, theirs in built.modules.items() if name.endswith(("proj", head)))
    classes = len(state[f"{last}.weight"])
    trained = option(checkpoint.task, "classification_head_name") or head
    if checkpoint.data is not None and trained == head and not regression:
        labels = named_labels(os.path.join(checkpoint.data, "label", "dict.txt"), classes)
    labels = labels or [f"LABEL_{number}" for number in range(classes)]
    entries: Dict[str, Any] = {
        "id2label": {str(number): label for number, label in enumerate(labels)},
        "label2id": {label: number for number, label in enumerate(labels)},
    }
    if regression:
        entries["problem_type"] = "regression"
    return entries


def read_labels(config: Config, head: str, rows: int) -> Tuple[List[str], str]:
    """The names of classes in config.json, and a note that lists them for *head*, with *rows* rows.

    Returns:
        the names in order, or no names if one is a default such as ``LABEL_0``, is a duplicate, or
        does not fit in a dictionary of fairseq; and the note.
    """
    names: Mapping[str, Any] = config.get("id2label", {})
    if not isinstance(names, dict) or not all(number.isdecimal() for number in names):
        raise UsageError(f"{config.path}: id2label is {names!r}; it must map numbers to names")
    classes = ", ".join(f"{number} {names[number]}" for number in sorted(names, key=int))
    if names and sorted(map(int, names)) != list(range(rows)):
        raise UsageError(f"{config.path}: id2label is {names!r}, but the head has {rows} outputs")
    labels = [names[number] for number in sorted(names, key=int)]
    usable = [
        label
        for number, label in enumerate(labels)
        if isinstance(label, str)
        and label.split() == [label]
        and label not in (*RESERVED, f"LABEL_{number}")
    ]
    note = f"head {head}, classes: {classes or '0 LABEL_0, 1 LABEL_1'}"
    return labels if len(set(usable)) == len(labels) else [], note
