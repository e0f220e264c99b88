"""Completion of a flat configuration from given values, a preset and defaults, and its checks."""

import contextlib
import dataclasses
import logging
from argparse import Namespace
from typing import Any, Callable, ContextManager, Iterator, List, Mapping

from fairseq.models.transformer import TransformerConfig
from omegaconf import DictConfig, OmegaConf, open_dict

from fairseq_posenc.attention import check_attention
from fairseq_posenc.basics.errors import UsageError, flag_of
from fairseq_posenc.configuration.effect import declared_by, unused_settings
from fairseq_posenc.configuration.fields import defaults_of
from fairseq_posenc.configuration.stacks import side_encoding, translation_stacks
from fairseq_posenc.encodings import Stack, all_encodings, check_encodings, parse_pattern
from fairseq_posenc.encodings.registry import FLAG
from fairseq_posenc.flags.options import SIDES, Options, option
from fairseq_posenc.flags.settings import check_settings, modernised
from fairseq_posenc.layers.compiled import check_compiled

logger = logging.getLogger(__name__)


def open_config(cfg: Options) -> ContextManager[Any]:
    """A context in which *cfg*, a namespace or a DictConfig, accepts new entries."""
    return open_dict(cfg) if isinstance(cfg, DictConfig) else contextlib.nullcontext()


@contextlib.contextmanager
def completed_within(cfg: Options) -> Iterator[None]:
    """A context in which *cfg* accepts new entries, and after which a DictConfig accepts none.

    Otherwise omegaconf 2.0 raises for a missing entry where ``getattr`` has a default.
    """
    with open_config(cfg):
        yield
    if isinstance(cfg, DictConfig):
        OmegaConf.set_struct(cfg, True)


def fill_missing(cfg: Options, preset: Mapping[str, Any]) -> None:
    """Fill settings that are missing from the DictConfig *cfg* from *preset*, in place."""
    with open_config(cfg):
        cfg.update({name: value for name, value in preset.items() if cfg.get(name) is None})


# set in every complete configuration, in those of old checkpoints too, and hardly ever by a user
_COMPLETE = ("rotary_original_length", "min_params_to_wrap")


def is_complete(cfg: Options) -> bool:
    """True for a configuration that :func:`configure` completed, as in a checkpoint."""
    return all(option(cfg, name) is not None for name in _COMPLETE)


# our sizes whose default is another flag; see left_open
_OWN_DEFAULTS_FROM = {"encoder_input_dim": "encoder_embed_dim", "num_positions": "max_positions"}
# sizes whose default is another flag, as in fairseq; the order matters
_DEFAULTS_FROM = {
    **_OWN_DEFAULTS_FROM,
    "decoder_embed_dim": "encoder_embed_dim",
    "decoder_ffn_embed_dim": "encoder_ffn_embed_dim",
    "decoder_input_dim": "decoder_embed_dim",
    "decoder_output_dim": "decoder_embed_dim",
}


@contextlib.contextmanager
def left_open(cfg: Options) -> Iterator[None]:
    """A context after which sizes that follow another flag are open again, unless they were given.

    fairseq's ``options.get_args`` changes settings of a complete command line; what follows them is
    therefore completed when the model is built.
    """
    names = [name for name in _OWN_DEFAULTS_FROM if option(cfg, name) is None]
    yield
    for name in names:
        if hasattr(cfg, name):
            setattr(cfg, name, None)


def configure(
    cfg: Options,
    family: type,
    preset: Mapping[str, Any],
    stacks: Callable[[Any], List[Stack]] = translation_stacks,
) -> None:
    """Complete and check a flat configuration, in place; the operation is idempotent.

    Settings that were not given are taken from *preset*, else from the defaults.  Those without an
    effect on the model get their defaults, so that checkpoints record what was built.

    Args:
        cfg: flat configuration, a namespace or a DictConfig.
        preset: the settings of the architecture.
        stacks: returns the stacks of a complete configuration.

    Raises:
        UsageError: flags contradict each other or are not supported.
    """
    fields, fresh = defaults_of(family), not is_complete(cfg)
    with open_config(cfg):
        modernise(cfg, family)
        _resolve_encoding(cfg, fields, preset)
        names = [name for name in fields if name not in _DEFAULTS_FROM]
        for name in names + [name for name in _DEFAULTS_FROM if name in fields]:
            if option(cfg, name) is None:
                source = _DEFAULTS_FROM.get(name)
                default = option(cfg, source) if source in fields else fields[name]
                setattr(cfg, name, preset.get(name, default))
        if option(cfg, "offload_activations"):  # fairseq says so for its translation models alone
            cfg.checkpoint_activations = True
        if fresh:  # a checkpoint loads with the values that it was trained with
            check_settings(cfg, dataclasses.fields(family))
            check_compiled(cfg)
        _refuse_unsupported(cfg)
        described = stacks(cfg)
        if cfg.rotary_original_length is None:  # kept if evaluation changes the lengths
            cfg.rotary_original_length = max(stack.max_positions for stack in described)
        check_attention(cfg, _encodings_of(cfg, fields), described)
    for stack in described:
        check_encodings(cfg, stack, side_encoding(cfg, stack.side))
    for name in unused_settings(cfg, declared_by(family)):
        setattr(cfg, name, fields[name])


def modernise(cfg: Options, family: type, notice: bool = False) -> None:
    """Replace former names and values of flags in *cfg* by the present ones, in place.

    Files become what checkpoints keep of them (``stored`` of
    :func:`~fairseq_posenc.flags.settings.setting`).

    Args:
        cfg: flat configuration that accepts new entries.
        notice: log a line for each; for command lines.
    """
    # includes the hidden fields for former names
    names = [field.name for field in dataclasses.fields(family)]
    settings = {name: option(cfg, name) for name in names}
    for name, value in modernised(settings, dataclasses.fields(family)).items():
        setattr(cfg, name, value)
        if notice and value is not None:
            logger.warning("%s %s: renamed; the former spelling still works", flag_of(name), value)
    for field in dataclasses.fields(family):
        value, stored = option(cfg, field.name), field.metadata.get("stored")
        if stored is not None and value is not None:
            setattr(cfg, field.name, stored(value))


def _sides(fields: Mapping[str, Any]) -> List[str]:
    """The sides that have a separate ``--…-position-encoding``: both, or none."""
    return [side for side in SIDES if f"{side}_position_encoding" in fields]


def _encodings_of(cfg: Options, fields: Mapping[str, Any]) -> List[Any]:
    """All encodings of a resolved configuration."""
    values = [side_encoding(cfg, side) for side in _sides(fields)] or [cfg.position_encoding]
    return all_encodings(",".join(values))


def _resolve_encoding(cfg: Options, fields: Mapping[str, Any], preset: Mapping[str, Any]) -> None:
    """Reconcile --position-encoding with fairseq's own flags for position tables."""
    with_flag = [side for side in SIDES if f"{side}_learned_pos" in fields]
    learned = [side for side in with_flag if option(cfg, f"{side}_learned_pos")]
    no_table = bool(option(cfg, "no_token_positional_embeddings"))
    value = option(cfg, "position_encoding") or preset.get("position_encoding")
    if value is None:
        value = "none" if no_table else "learned" if learned == with_flag else "sinusoidal"
    cfg.position_encoding = value
    parse_pattern(value)
    any_table = False
    for side in with_flag or ["encoder"]:
        name = f"{side}_position_encoding"
        own = option(cfg, name) or value
        if name in fields:
            parse_pattern(own, flag_of(name))
        if side in learned and own == "sinusoidal" and learned != with_flag and name in fields:
            own = "learned"  # fairseq lets one of the two tables be learned
            setattr(cfg, name, own)
        tables = {encoding.input for encoding in all_encodings(own)} - {None}
        any_table = any_table or bool(tables)
        if side in learned and "learned" not in tables:
            instead = "learned" if tables else f"learned+{own}"
            raise UsageError(
                f"--{side}-learned-pos contradicts {FLAG} {own}; for a learned table give {FLAG} "
                f"{instead} alone"
            )
        if no_table and tables:
            raise UsageError(
                f"--no-token-positional-embeddings contradicts {FLAG} {own}, which adds such "
                "embeddings; drop one of the two"
            )
        if tables == {"learned"} or not with_flag:  # no such flag in RoBERTa, set it for fairseq
            setattr(cfg, f"{side}_learned_pos", tables == {"learned"})
    cfg.no_token_positional_embeddings = not any_table


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
