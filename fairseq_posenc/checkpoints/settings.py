"""The model settings of a checkpoint, under their present names and by role.

Checkpoints are given as :func:`~fairseq_posenc.checkpoints.reading.read_checkpoint` returns them.
"""

import re
from argparse import Namespace
from typing import Any, Dict, Mapping, Optional, Set, Tuple

from fairseq_posenc.checkpoints.reading import model_settings, settings_in
from fairseq_posenc.configuration.effect import unused_settings
from fairseq_posenc.configuration.fields import metadata_of, plug_in_flags
from fairseq_posenc.configuration.stacks import side_encoding
from fairseq_posenc.flags.former import modernised
from fairseq_posenc.flags.options import SIDES, Options
from fairseq_posenc.flags.settings import role_in

_OUTPUT = re.compile(r"classification_heads\.([^.]+)\.out_proj\.weight$")


def saved_settings(checkpoint: Mapping[str, Any]) -> Dict[str, Any]:
    """The settings of a checkpoint's model, with former names and values replaced."""
    saved = model_settings(checkpoint)
    saved.update(modernised(saved))
    return saved


def architecture(settings: Mapping[str, Any]) -> str:
    """The name of a model's architecture, or of the model, in its settings."""
    return str(settings.get("_name") or settings.get("arch"))


def task_of(checkpoint: Mapping[str, Any]) -> Options:
    """The settings of the task that a checkpoint was trained on, as saved."""
    return Namespace(**settings_in(checkpoint, "task"))


def task_settings(task: Any) -> Any:
    """The settings of one of fairseq's tasks, ``cfg`` or ``args``, or None."""
    return getattr(task, "cfg", None) or getattr(task, "args", None)


def heads_of(checkpoint: Mapping[str, Any]) -> Dict[str, int]:
    """The numbers of outputs of the classification heads in a checkpoint, by their names."""
    matches = (
        (_OUTPUT.search(key), value) for key, value in (checkpoint.get("model") or {}).items()
    )
    return {match.group(1): len(value) for match, value in matches if match}


def is_ours(settings: Mapping[str, Any]) -> bool:
    """True for the settings of a model of this plug-in."""
    return settings.get("position_encoding") is not None


def encodings_by_side(settings: Mapping[str, Any]) -> Dict[str, str]:
    """The position encoding by side, from the settings of a model's checkpoint.

    fairseq's own models have a table of sinusoids, a learned table, or none.  Sides that the model
    lacks may be named, too.
    """
    if is_ours(settings):
        return {side: side_encoding(Namespace(**settings), side) for side in SIDES}
    learned = {s: settings[f"{s}_learned_pos"] for s in SIDES if f"{s}_learned_pos" in settings}
    if settings.get("no_token_positional_embeddings"):
        return dict.fromkeys(SIDES, "none")
    # RoBERTa has no such setting and learns its table
    return {
        side: "learned" if table else "sinusoidal"
        for side, table in (learned or dict.fromkeys(SIDES, True)).items()
    }


def trained_settings(
    checkpoint: Mapping[str, Any], options: Optional[Options] = None
) -> Dict[str, Any]:
    """The settings that are part of the trained model.

    Args:
        options: the settings with which it is used, if not its own.
    """
    trained = settings_by_role(checkpoint, ("model",), options)
    if needs_segments(trained):
        trained["segments"] = "single"  # before there was a choice
    return trained


def needs_segments(settings: Mapping[str, Any]) -> bool:
    """True for a masked language model with segments that is older than ``--segments``.

    Args:
        settings: the settings of a model, by name.
    """
    several = (settings.get("num_segments") or 0) > 1
    is_masked_lm = settings.get("encoder_layers") is not None  # decoders have num_segments, too
    return several and is_masked_lm and settings.get("segments") is None


def settings_by_role(
    checkpoint: Mapping[str, Any], roles: Tuple[str, ...], options: Optional[Options] = None
) -> Dict[str, Any]:
    """The settings of a checkpoint's model that have one of *roles*.

    An architecture defined with argparse stores all flags of the run with the model's; flags
    that are also in another group (task, optimiser, paths) are left out.  Flags newer than the
    checkpoint get their default, with which it was trained.  So do flags without an effect on the
    model, which older versions recorded from presets.

    Args:
        roles: some of :data:`fairseq_posenc.flags.settings.ROLES`.
        options: the settings with which the model is used, if not its own.
    """
    saved = saved_settings(checkpoint)
    given, own = dict(saved), plug_in_flags()
    declared = {name: metadata_of(name, own) for name in {*own, *given}}
    if is_ours(saved):
        defaults = {name: flag.metadata["default"] for name, flag in own.items()}
        younger = [name for name in own if saved.get(name) is None]
        given.update({name: defaults[name] for name in younger if defaults[name] is not None})
        unused = unused_settings(Namespace(**given), declared)
        given.update({name: defaults[name] for name in unused if name in own})
    elsewhere, used = _names_elsewhere(checkpoint), options or Namespace(**given)
    return {
        name: value
        for name, value in given.items()
        if name not in elsewhere
        and not name.startswith("_")
        and role_in(used, declared[name]) in roles
    }


def _names_elsewhere(checkpoint: Mapping[str, Any]) -> Set[str]:
    groups = checkpoint.get("cfg") or {}
    names = set(groups)
    for group in groups:  # items() of OmegaConf 2.0 fails on the settings of a Namespace
        settings = groups[group]
        if group != "model" and isinstance(settings, Mapping):
            names.update(set(settings))
    return names
