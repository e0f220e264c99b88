"""The flags of the model families: fairseq's own flags, and the flags of all registries.

fairseq has two forms of the Transformer's configuration: flat on the command line
(``--encoder-embed-dim``) and nested inside its modules (``cfg.encoder.embed_dim``).  The flat form
is derived here from the nested form of the installed fairseq, with all its flags and help texts;
encodings, attentions and layers add their own flags.

In the flat form every field starts as None, "not given", to distinguish a user's choice from a
preset.  This also works under ``fairseq-hydra-train``, where fairseq's own presets have no
effect, because fairseq fills in the defaults of dataclasses before it applies presets.
"""

import argparse
import dataclasses
from collections import Counter
from dataclasses import dataclass
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Tuple

from fairseq.dataclass import FairseqDataclass

from fairseq_posenc.attention import ATTENTIONS, refuse_any_order
from fairseq_posenc.attention.base import AttentionFlags
from fairseq_posenc.attention.gated import GatedFlags
from fairseq_posenc.basics.errors import UsageError, flag_of
from fairseq_posenc.configuration.features import (
    FEATURES,
    Completed,
    Feature,
    features_of,
    register_feature,
)
from fairseq_posenc.configuration.stock import REPLACED, STOCK_RANGES, STOCK_ROLES
from fairseq_posenc.encodings import ENCODINGS, encoding_flags
from fairseq_posenc.encodings.position_ids import (
    FLAG,
    POSITION_RULES,
    PositionFlags,
    check_position_ids,
)
from fairseq_posenc.flags.options import NAMES, Options, option
from fairseq_posenc.flags.registry import fields_of
from fairseq_posenc.flags.settings import help_text, role_in, setting
from fairseq_posenc.layers import LAYERS
from fairseq_posenc.layers.feed_forward import FEED_FORWARDS, FeedForwardFlags
from fairseq_posenc.layers.norms import NORMS, NormFlags
from fairseq_posenc.layers.parameters import ParameterFlags

Field = Tuple[str, Any, Any]

# fairseq reads these as comma-separated text, whatever type it declares
_AS_TEXT = ("layers_to_keep", "adaptive_softmax_cutoff")
# under hydra, fairseq's trainer compares these with a number before the model sets their defaults
_NEVER_NONE = ("base_layers",)


@dataclass
class KindFlags:
    """The flags that select the position encoding and the kind of layer."""

    position_encoding: Optional[str] = setting(
        None,
        "position encoding: {names}; several joined by +, or a pattern over the layers such as "
        "rotary*3,none",
        names=ENCODINGS,
    )
    layer: Optional[str] = setting(
        "transformer",
        "{choices}: attention and feed-forward, or gated attention units",
        choices=LAYERS,
    )


def kernels_with_groups() -> List[str]:
    """The attentions in which several query heads can share a key head."""
    return [name for name, entry in ATTENTIONS.items() if hasattr(entry.flags, "kv_heads")]


@dataclass
class SideFlags:
    """The flags that select the encoding and the key heads of one side of an encoder-decoder."""

    encoder_position_encoding: Optional[str] = setting(
        None, "position encoding of the encoder (default: --position-encoding)"
    )
    decoder_position_encoding: Optional[str] = setting(
        None, "position encoding of the decoder (default: --position-encoding)"
    )
    encoder_kv_heads: Optional[int] = setting(
        None,
        "number of heads of keys and values in the encoder (default: --kv-heads)",
        at_least=1,
        needs={"attention": kernels_with_groups},
    )
    decoder_kv_heads: Optional[int] = setting(
        None,
        "number of heads of keys and values in the decoder (default: --kv-heads)",
        at_least=1,
        needs={"attention": kernels_with_groups},
    )


def _check_positions(completed: Completed) -> None:
    """Refuse a ``--position-ids`` rule that a stack cannot follow, or that no encoding reads."""
    cfg = completed.cfg
    if cfg.position_ids is None:
        return
    refuse_any_order(cfg, f"{FLAG} {cfg.position_ids}")
    for stack in completed.stacks:
        for name, encodings in completed.patterns[stack.side].compositions.items():
            check_position_ids(cfg, name, encodings, stack)


register_feature(SideFlags, models=["posenc_transformer"])
register_feature(PositionFlags, registries=[POSITION_RULES], check=_check_positions)


def declared_fields(flags: Iterable["dataclasses.Field[Any]"]) -> List[Field]:
    """Fields for flags declared with ``setting``, and hidden fields for their former names."""
    fields: List[Field] = []
    for flag in flags:
        fields.append((flag.name, flag.type, _field(flag.name, flag.metadata)))
        for former in [name for name, present in NAMES.items() if present == flag.name]:
            hidden: Any = {"help": argparse.SUPPRESS, "role": "former"}
            fields.append((former, flag.type, dataclasses.field(default=None, metadata=hidden)))
    return fields


def stock_field(name: str, kind: Any, help: Optional[str], default: object) -> Field:
    """A field for one of fairseq's flags, with its role, its range and the flags that it needs."""
    metadata = {"default": default, **_stock_metadata(name, help)}
    return name, Optional[kind], _field(name, metadata)


def _field(name: str, metadata: Mapping[str, Any]) -> Any:
    """A field that starts as None, with its default and help text in *metadata*."""
    start = metadata.get("default") if name in _NEVER_NONE else None
    return dataclasses.field(default=start, metadata={**metadata, "help": help_text(metadata)})


def _stock_metadata(name: str, help: Optional[str] = None) -> Dict[str, Any]:
    return {
        "help": help or name.replace("_", " "),
        "role": STOCK_ROLES.get(name, "model"),
        "needs": REPLACED.get(name),
        **STOCK_RANGES.get(name, {}),
    }


def flat_fields(nested: type, prefix: str = "") -> List[Field]:
    """Flat optional fields of a nested dataclass: ``encoder.layers`` becomes ``encoder_layers``."""
    fields: List[Field] = []
    defaults = nested()
    for field in dataclasses.fields(nested):
        value = option(defaults, field.name)
        value = value() if isinstance(value, type) else value
        if field.name.startswith("_"):
            continue
        if isinstance(value, FairseqDataclass):
            fields += flat_fields(type(value), f"{field.name}_")
            continue
        kind = str if field.name.endswith(_AS_TEXT) else field.type
        default = None if isinstance(value, str) and value.startswith("${") else value
        default = getattr(default, "value", default)
        name = prefix + field.name
        fields.append(stock_field(name, kind, field.metadata.get("help"), default))
    return fields


def layer_flags(models: Iterable[str] = ()) -> List["dataclasses.Field[Any]"]:
    """The position, attention and layer flags of all families, and those that *models* add."""
    flags = list(_flags_of_features(features_of(models)))
    fixed = (KindFlags, AttentionFlags, GatedFlags, NormFlags, FeedForwardFlags, ParameterFlags)
    for each in fixed:
        flags += dataclasses.fields(each)
    for registry in (ATTENTIONS, NORMS, FEED_FORWARDS):
        flags += registry.flags()
    return flags + encoding_flags()


def _flags_of_features(features: Iterable[Feature]) -> Iterator["dataclasses.Field[Any]"]:
    for feature in features:
        yield from fields_of(feature.flags)
        for registry in feature.registries:
            yield from registry.flags()


def make_dataclass(name: str, fields: List[Field]) -> type:
    """The dataclass of a family's flags."""
    counts = Counter(field[0] for field in fields)
    for field, count in counts.items():
        if count > 1:
            raise UsageError(
                f"{flag_of(field)}: declared twice: there already is a flag of this name; choose "
                "another name"
            )
    return dataclasses.make_dataclass(name, fields, bases=(FairseqDataclass,))


def defaults_of(family: type) -> Dict[str, Any]:
    """The default of every flag of a family's dataclass, by name."""
    return {
        field.name: field.metadata.get("default")
        for field in dataclasses.fields(family)
        if field.metadata.get("role") != "former"
    }


def computing_fields(family: type, options: Options) -> List["dataclasses.Field[Any]"]:
    """The settings on which the outputs of a trained model for one text depend, our own first.

    These are all settings with the role ``model``, and the plug-in's own settings with the role
    ``free``, such as ``--rotary-scaling``, which changes the frequencies that a model computes.
    """
    ours, computing = plug_in_flags(), []
    for field in dataclasses.fields(family):
        role = role_in(options, field.metadata)
        depends = role == "model" or (role == "free" and field.name in ours)
        if depends and not field.metadata.get("exported"):
            computing.append(field)
    return sorted(computing, key=lambda field: field.name not in ours)


def plug_in_flags() -> Dict[str, "dataclasses.Field[Any]"]:
    """The flags that the plug-in adds to fairseq's in at least one family, by name."""
    return {flag.name: flag for flag in (*layer_flags(), *_flags_of_features(FEATURES))}


def metadata_of(name: str, ours: Mapping[str, Any]) -> Mapping[str, Any]:
    """The declaration of a model flag: in *ours* (the flags of the plug-in), or else fairseq's."""
    flag = ours.get(name)
    return _stock_metadata(name) if flag is None else flag.metadata
