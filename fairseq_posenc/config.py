"""The flags of the model families, their defaults and presets.

fairseq keeps two shapes of the Transformer's configuration: flat on the command line
(``--encoder-embed-dim``) and nested inside its modules (``cfg.encoder.embed_dim``).  The flat form
is derived here from the nested one that is installed, so every flag of the installed fairseq is
there, with its help; the encodings add their own.

In the flat form every field starts as None, "not given".  That is what lets a preset be told apart
from a user's choice, also under ``fairseq-hydra-train``, where fairseq fills dataclass defaults in
before a preset is asked (and so loses its presets).
"""

import contextlib
import dataclasses
from argparse import Namespace
from typing import Any, Callable, List, Mapping, Optional, Tuple

from fairseq.dataclass import FairseqDataclass
from fairseq.models.transformer import TransformerConfig
from omegaconf import DictConfig, OmegaConf, open_dict

from fairseq_posenc.attention.choice import (
    AttentionFlags,
    check_attention,
    feature_size,
    keeps_products,
)
from fairseq_posenc.attention.gated import GatedFlags, check_gated
from fairseq_posenc.encodings import (
    ENCODINGS,
    Stack,
    build_encoding,
    encoding_flags,
    parse_encodings,
)
from fairseq_posenc.errors import UsageError
from fairseq_posenc.modules.simple import SimpleFlags, check_simple

Field = Tuple[str, Any, Any]
LAYERS = ("transformer", "gated")

# fairseq reads these as comma-separated text, whatever type it declares
_AS_TEXT = ("layers_to_keep", "adaptive_softmax_cutoff")


# fairseq's trainer compares these with a number, under hydra before the model has filled them in
_NEVER_NONE = ("base_layers",)


def optional(name: str, kind: Any, metadata: Mapping[str, Any]) -> Field:
    """A field that starts as None, its default and help text in *metadata*."""
    metadata = dict(metadata)
    default = metadata.get("default")
    if default is not None:
        metadata["help"] += f" (default: {default})"
    start = default if name in _NEVER_NONE else None
    return name, Optional[kind], dataclasses.field(default=start, metadata=metadata)


def flat_fields(nested: type, prefix: str = "") -> List[Field]:
    """Fields of a nested fairseq dataclass as optional flat ones, ``encoder.layers`` by prefix."""
    fields: List[Field] = []
    defaults = nested()
    for field in dataclasses.fields(nested):
        value = getattr(defaults, field.name)
        value = value() if isinstance(value, type) else value
        if field.name.startswith("_"):
            continue
        if isinstance(value, FairseqDataclass):
            fields += flat_fields(type(value), f"{field.name}_")
            continue
        kind = str if field.name.endswith(_AS_TEXT) else field.type
        default = None if isinstance(value, str) and value.startswith("${") else value
        metadata = dict(field.metadata, default=getattr(default, "value", default))
        metadata.setdefault("help", field.name.replace("_", " "))
        fields.append(optional(prefix + field.name, kind, metadata))
    return fields


def encoding_fields() -> List[Field]:
    """``--position-encoding`` and the flags of every registered encoding."""
    known = ", ".join(sorted(ENCODINGS))
    text = f"position encoding: one of {known}, or several joined with +"
    fields = [optional("position_encoding", str, {"help": text})]
    for flag in encoding_flags():
        fields.append((flag.name, flag.type, optional(flag.name, str, flag.metadata)[2]))
    return fields


def family_config(name: str, fields: List[Field]) -> type:
    """The dataclass of a family's flags."""
    return dataclasses.make_dataclass(name, fields, bases=(FairseqDataclass,))


def layer_fields() -> List[Field]:
    """The flags of layers that every family has."""
    kind = optional("layer", str, {"help": " or ".join(LAYERS), "default": LAYERS[0]})
    every = (AttentionFlags, GatedFlags, SimpleFlags)
    flags = [flag for flags in every for flag in dataclasses.fields(flags)]
    return [kind] + [(f.name, f.type, optional(f.name, str, f.metadata)[2]) for f in flags]


TranslationConfig = family_config(
    "TranslationConfig",
    flat_fields(TransformerConfig)
    + encoding_fields()
    + layer_fields()
    + [
        optional("alignment_layer", int, {"help": "decoder layer trained on word alignments"}),
        optional("alignment_heads", int, {"help": "heads of that layer trained on alignments"}),
        optional(
            "full_context_alignment",
            bool,
            {"help": "let the alignment see the whole target sentence", "default": False},
        ),
    ],
)


def unlocked(cfg: Any) -> Any:
    """A context in which *cfg*, a namespace or a DictConfig, takes new entries."""
    return open_dict(cfg) if isinstance(cfg, DictConfig) else contextlib.nullcontext()


def fill(cfg: DictConfig, preset: Mapping[str, Any]) -> None:
    """Take from *preset* what *cfg* does not say, in place; the rest stays open."""
    with open_dict(cfg):
        cfg.update({name: value for name, value in preset.items() if cfg.get(name) is None})


# a size that was not given is that of its leader, as in fairseq; in this order
_FOLLOWS = {
    "encoder_input_dim": "encoder_embed_dim",
    "num_positions": "max_positions",
    "decoder_embed_dim": "encoder_embed_dim",
    "decoder_ffn_embed_dim": "encoder_ffn_embed_dim",
    "decoder_input_dim": "decoder_embed_dim",
    "decoder_output_dim": "decoder_embed_dim",
}


def translation_stacks(cfg: Any) -> List[Stack]:
    """The stacks of an encoder-decoder."""
    return [stack_of(cfg, side) for side in ("encoder", "decoder")]


def configure(
    cfg: Any,
    family: type,
    preset: Mapping[str, Any],
    stacks: Callable[[Any], List[Stack]] = translation_stacks,
) -> None:
    """Complete and check a flat configuration, in place; doing it twice changes nothing.

    What was not given comes from *preset*, else from the default.

    Args:
        cfg: flat configuration, a namespace or a DictConfig.
        family: its dataclass.
        preset: the architecture's own values.
        stacks: says which stacks a complete configuration describes.

    Raises:
        UsageError: if flags contradict each other or ask for what cannot work.
    """
    fields = {field.name: field.metadata.get("default") for field in dataclasses.fields(family)}
    with unlocked(cfg):
        _settle_encoding(cfg, fields, preset)
        for name in [n for n in fields if n not in _FOLLOWS] + [n for n in _FOLLOWS if n in fields]:
            if getattr(cfg, name, None) is None:
                leader = _FOLLOWS.get(name)
                default = getattr(cfg, leader) if leader in fields else fields[name]
                setattr(cfg, name, preset.get(name, default))
        _refuse_what_cannot_work(cfg)
        described = stacks(cfg)
        if cfg.rotary_original_length is None:  # kept, whatever the model is made to read later
            cfg.rotary_original_length = max(stack.max_positions for stack in described)
    for stack in described:
        build_encoding(cfg, stack)


def _settle_encoding(cfg: Any, fields: Mapping[str, Any], preset: Mapping[str, Any]) -> None:
    """Reconcile --position-encoding with fairseq's own flags for position tables."""
    sides = [side for side in ("encoder", "decoder") if f"{side}_learned_pos" in fields]
    learned = [side for side in sides if getattr(cfg, f"{side}_learned_pos", None)]
    no_table = bool(getattr(cfg, "no_token_positional_embeddings", None))
    value = getattr(cfg, "position_encoding", None) or preset.get("position_encoding")
    if value is None:
        value = "none" if no_table else "learned" if learned == sides else "sinusoidal"
    tables = {encoding.input for encoding in parse_encodings(value)} - {None}
    one_side = tables == {"sinusoidal"} and learned != sides  # fairseq lets one table be learned
    if learned and "learned" not in tables and not one_side:
        instead = "learned" if tables else f"learned+{value}"
        raise UsageError(
            f"--{learned[0]}-learned-pos contradicts --position-encoding {value}; "
            f"for a learned table give --position-encoding {instead} alone"
        )
    if no_table and tables:
        raise UsageError(
            f"--no-token-positional-embeddings contradicts --position-encoding {value}, "
            "which adds such embeddings; drop one of the two"
        )
    cfg.position_encoding = value
    cfg.no_token_positional_embeddings = not tables
    if tables == {"learned"} or not sides:  # without those flags fairseq has to be told either way
        for side in sides or ("encoder",):
            setattr(cfg, f"{side}_learned_pos", tables == {"learned"})


def heads_of(cfg: Any, side: str) -> Tuple[int, int]:
    """Number and size of the heads on one *side*, as the position encoding sees them.

    Raises:
        UsageError: if the heads do not divide the channels.
    """
    if cfg.layer == "gated":
        return 1, cfg.gau_key_size
    channels, heads = getattr(cfg, f"{side}_embed_dim"), getattr(cfg, f"{side}_attention_heads")
    if heads < 1 or channels % heads:
        raise UsageError(
            f"--{side}-attention-heads {heads}: must divide --{side}-embed-dim {channels}"
        )
    return heads, feature_size(cfg, channels // heads)


def stack_of(cfg: Any, side: str) -> Stack:
    """The :class:`Stack` that the configuration of an encoder-decoder describes for one *side*."""
    length = cfg.max_source_positions if side == "encoder" else cfg.max_target_positions
    products = keeps_products(cfg)
    return Stack(side, *heads_of(cfg, side), side == "decoder", length, keeps_products=products)


def _refuse_what_cannot_work(cfg: Any) -> None:
    check_simple(cfg)
    if cfg.layer not in LAYERS:
        raise UsageError(f"--layer {cfg.layer}: must be {' or '.join(LAYERS)}")
    check_attention(cfg)
    if cfg.layer == "gated":
        check_gated(cfg)
    if getattr(cfg, "cross_self_attention", False):
        raise UsageError(
            "--cross-self-attention: source and target positions cannot share one attention here; "
            "drop it, or use fairseq's --arch transformer"
        )
    for side in ("encoder", "decoder"):
        if getattr(cfg, f"{side}_xformers_att_config", None):
            raise UsageError(
                f"--{side}-xformers-att-config: xFormers attention takes no position encoding; "
                "drop it, or use fairseq's --arch transformer"
            )


def nested(cfg: Any) -> TransformerConfig:
    """fairseq's nested configuration, with the encodings' flags as extra attributes."""
    plain: Any = vars(cfg)
    if OmegaConf.is_config(cfg):
        plain = OmegaConf.to_container(cfg, enum_to_str=True)
    return TransformerConfig.from_namespace(Namespace(**plain))
