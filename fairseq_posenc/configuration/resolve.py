"""Completes a flat configuration from given values, a preset and defaults, and checks it."""

import contextlib
import dataclasses
import logging
from argparse import Namespace
from typing import Any, ContextManager, Dict, Iterator, List, Mapping, Optional

from fairseq.models.transformer import TransformerConfig
from omegaconf import DictConfig, OmegaConf, open_dict

from fairseq_posenc.attention import check_attention
from fairseq_posenc.basics.errors import UsageError, flag_of
from fairseq_posenc.configuration.effect import Declared, declared_by, unused_settings
from fairseq_posenc.configuration.features import Completed, features_of
from fairseq_posenc.encodings import Encoding, Pattern, Stack, check_encodings, parse
from fairseq_posenc.encodings.registry import FLAG
from fairseq_posenc.flags.options import SIDES, Options, modernised, option
from fairseq_posenc.flags.settings import check_settings

logger = logging.getLogger(__name__)


def open_config(cfg: Options) -> ContextManager[Any]:
    """A context in which *cfg*, a namespace or a DictConfig, accepts new entries."""
    return open_dict(cfg) if isinstance(cfg, DictConfig) else contextlib.nullcontext()


def fill_missing(cfg: Options, preset: Mapping[str, Any]) -> None:
    """Fill settings that are missing from the DictConfig *cfg* from *preset*, in place."""
    with open_config(cfg):
        cfg.update({name: value for name, value in preset.items() if cfg.get(name) is None})


# set in every complete configuration, even in old checkpoints, but hardly ever by users
_COMPLETE = ("rotary_original_length", "min_params_to_wrap")


def is_complete(cfg: Options) -> bool:
    """True for a configuration that :func:`configure` completed, as in a checkpoint."""
    return all(option(cfg, name) is not None for name in _COMPLETE)


# the plug-in's sizes that default to the value of another flag
_OWN_DEFAULTS_FROM = {"encoder_input_dim": "encoder_embed_dim", "num_positions": "max_positions"}
# all sizes that default to the value of another flag, ordered so that this value is set first
_DEFAULTS_FROM = {
    **_OWN_DEFAULTS_FROM,
    "decoder_embed_dim": "encoder_embed_dim",
    "decoder_ffn_embed_dim": "encoder_ffn_embed_dim",
    "decoder_input_dim": "decoder_embed_dim",
    "decoder_output_dim": "decoder_embed_dim",
}


@contextlib.contextmanager
def left_open(cfg: Options) -> Iterator[None]:
    """A context that unsets, on exit, sizes in :data:`_OWN_DEFAULTS_FROM` that were not given.

    fairseq's ``options.get_args`` changes settings of a complete command line; :func:`close`
    therefore sets these sizes only when the model is built.
    """
    names = [name for name in _OWN_DEFAULTS_FROM if getattr(cfg, name, None) is None]
    yield
    for name in names:
        if hasattr(cfg, name):
            setattr(cfg, name, None)


def close(cfg: Options, declared: Declared) -> None:
    """Set the *declared* sizes in :data:`_OWN_DEFAULTS_FROM` that were not given, in place."""
    for name, source in _OWN_DEFAULTS_FROM.items():
        if name in declared and getattr(cfg, name) is None:
            setattr(cfg, name, getattr(cfg, source))


def configure(
    cfg: Options,
    family: Any,
    preset: Mapping[str, Any],
    settings: Any,
    longest: Optional[int] = None,
) -> None:
    """Complete and check a flat configuration, in place; the operation is idempotent.

    Settings that were not given are taken from *preset*, else from the defaults.  A setting without
    an effect on the model gets its default, so that checkpoints record what was built.

    *settings* are the task's settings, or the parsed command line; *longest* is the length of the
    longest training text in tokens (default: the longest that a stack accepts).
    """
    flags, fresh, features = family.dataclass, not is_complete(cfg), features_of(family.models)
    declared = declared_by(flags)
    with open_config(cfg):
        for feature in features:
            if feature.complete:
                feature.complete(cfg)
        for name, value in preset.items():
            if getattr(cfg, name, None) is None:
                setattr(cfg, name, value)
        patterns = _resolve_encoding(cfg, declared)
        _fill_defaults(cfg, declared)
        if fresh:  # a checkpoint loads with the values that it was trained with
            check_settings(cfg, dataclasses.fields(flags))
        _refuse_unsupported(cfg)
        described: List[Stack] = family.stacks(cfg)
        if cfg.rotary_original_length is None:  # kept if evaluation changes the lengths
            length = longest or max([stack.max_positions for stack in described])
            lengths = [f.trained_length(cfg, length) for f in features if f.trained_length]
            cfg.rotary_original_length = max([length, *lengths])
        check_attention(cfg, _distinct(patterns), described)
    for stack in described:
        check_encodings(cfg, stack, patterns[stack.side])
    completed = Completed(cfg, family.model, described, settings, fresh, patterns)
    for feature in features:
        if feature.check:
            feature.check(completed)
    for name in unused_settings(cfg, declared):
        setattr(cfg, name, declared[name].get("default"))


def _fill_defaults(cfg: Options, declared: Declared) -> None:
    """Fill unset flags; those that default to the value of another flag are filled last."""
    for name, metadata in declared.items():
        former = metadata.get("role") == "former"
        if name not in _DEFAULTS_FROM and not former and getattr(cfg, name, None) is None:
            setattr(cfg, name, metadata.get("default"))
    for name, source in _DEFAULTS_FROM.items():
        if name in declared and getattr(cfg, name, None) is None:
            default = declared[name].get("default")
            setattr(cfg, name, getattr(cfg, source) if source in declared else default)
    if option(cfg, "offload_activations"):  # fairseq sets this only in translation models
        cfg.checkpoint_activations = True


def modernise(cfg: Options, family: type, notice: bool = False) -> None:
    """Replace former names and values of flags in *cfg*, in place; if *notice*, log each of them.

    A value such as a file name is replaced by what a checkpoint stores instead (``stored`` of
    :func:`~fairseq_posenc.flags.settings.setting`).
    """
    settings = {field.name: getattr(cfg, field.name, None) for field in dataclasses.fields(family)}
    for name, value in modernised(settings).items():
        setattr(cfg, name, value)
        if notice and value is not None:
            logger.warning("%s %s: renamed; the former spelling still works", flag_of(name), value)
    for field in dataclasses.fields(family):
        stored, value = field.metadata.get("stored"), getattr(cfg, field.name, None)
        if stored is not None and value is not None:
            setattr(cfg, field.name, stored(value))


def _distinct(patterns: Mapping[str, Pattern]) -> List[Encoding]:
    """All encodings of a model, by name."""
    distinct = {e.name: e for pattern in patterns.values() for e in pattern.encodings}
    return list(distinct.values())


def _resolve_encoding(cfg: Options, declared: Declared) -> Dict[str, Pattern]:
    """The encoding pattern of each side; reconciles --position-encoding with fairseq's flags."""
    with_flag = [side for side in SIDES if f"{side}_learned_pos" in declared]
    learned = [side for side in with_flag if option(cfg, f"{side}_learned_pos")]
    no_table = bool(option(cfg, "no_token_positional_embeddings"))
    value = option(cfg, "position_encoding") or None
    if value is None:
        value = "none" if no_table else "learned" if learned == with_flag else "sinusoidal"
    cfg.position_encoding = value
    parsed, patterns = {value: parse(value)}, {}
    for side in with_flag or ["encoder"]:
        name = f"{side}_position_encoding"
        here = option(cfg, name) or value
        if side in learned and here == "sinusoidal" and learned != with_flag and name in declared:
            here = "learned"  # fairseq lets one side alone have a learned table
            setattr(cfg, name, here)
        if here not in parsed:
            parsed[here] = parse(here, flag_of(name))
        patterns[side] = parsed[here]
        tables = {encoding.input for encoding in parsed[here].encodings} - {None}
        if side in learned and "learned" not in tables:
            instead = "learned" if tables else f"learned+{here}"
            raise UsageError(
                f"--{side}-learned-pos contradicts {FLAG} {here}; for a learned table give {FLAG} "
                f"{instead} alone"
            )
        if no_table and tables:
            raise UsageError(
                f"--no-token-positional-embeddings contradicts {FLAG} {here}, which adds such "
                "embeddings; drop one of the two"
            )
        if tables == {"learned"}:
            setattr(cfg, f"{side}_learned_pos", True)
    cfg.no_token_positional_embeddings = not any(e.input for e in _distinct(patterns))
    return patterns


def _refuse_unsupported(cfg: Options) -> None:
    if option(cfg, "cross_self_attention", False):
        raise UsageError(
            "--cross-self-attention: source and target positions cannot share one attention here; "
            "drop it, or use fairseq's --arch transformer"
        )
    for side in SIDES:
        if option(cfg, f"{side}_xformers_att_config"):
            raise UsageError(
                f"--{side}-xformers-att-config: xFormers attention takes no position encoding; "
                "drop it, or use fairseq's --arch transformer"
            )


def nested(cfg: Options) -> TransformerConfig:
    """fairseq's nested configuration, with the plug-in's flags as extra attributes."""
    plain: Any = vars(cfg)
    if OmegaConf.is_config(cfg):
        plain = OmegaConf.to_container(cfg, enum_to_str=True)
    return TransformerConfig.from_namespace(Namespace(**plain))
