"""The model settings of a checkpoint, under their current names and by role.

A checkpoint is a dictionary from :func:`~fairseq_posenc.checkpoints.reading.read_checkpoint`.
"""

import re
from argparse import Namespace
from typing import Any, Dict, Mapping, Optional, Set, Tuple

from fairseq.models import ARCH_MODEL_NAME_REGISTRY, MODEL_REGISTRY

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.checkpoints.reading import model_settings, settings_in
from fairseq_posenc.configuration.effect import unused_settings
from fairseq_posenc.configuration.features import side_encoding
from fairseq_posenc.configuration.fields import metadata_of, plug_in_flags
from fairseq_posenc.flags.options import SIDES, Options, modernised
from fairseq_posenc.flags.settings import role_in

_OUTPUT = re.compile(r"classification_heads\.([^.]+)\.out_proj\.weight$")
#: For each model of fairseq: the prefix of its layers' parameters (the encoder's in translation).
STACKS = {
    "transformer": "encoder.",
    "transformer_lm": "decoder.",
    "roberta": "encoder.sentence_encoder.",
}


def saved_settings(checkpoint: Mapping[str, Any]) -> Dict[str, Any]:
    """The settings of a checkpoint's model, with former names and values replaced."""
    saved = model_settings(checkpoint)
    saved.update(modernised(saved))
    return saved


def architecture(settings: Mapping[str, Any]) -> str:
    """The architecture in a model's settings, or the name of the model."""
    return str(settings.get("_name") or settings.get("arch"))


def task_of(checkpoint: Mapping[str, Any]) -> Options:
    """The settings of the task that a checkpoint was trained on, exactly as saved."""
    return Namespace(**settings_in(checkpoint, "task"))


def task_settings(task: Any) -> Any:
    """The settings of a fairseq task (its ``cfg`` or ``args``), or None."""
    return getattr(task, "cfg", None) or getattr(task, "args", None)


def heads_of(checkpoint: Mapping[str, Any]) -> Dict[str, int]:
    """The number of classes of each classification head in a checkpoint, by head name."""
    state = checkpoint.get("model") or {}
    matches = ((_OUTPUT.search(key), value) for key, value in state.items())
    return {match.group(1): len(value) for match, value in matches if match}


def is_ours(settings: Mapping[str, Any]) -> bool:
    """True for the settings of a model of this plug-in."""
    return settings.get("position_encoding") is not None


def encodings_by_side(settings: Mapping[str, Any]) -> Dict[str, str]:
    """The position encoding of each side, from the settings of a model.

    fairseq's own models have a table of sinusoids, a learned table, or no table.  The result may
    also contain a side that the model lacks.
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


def needs_segments(settings: Mapping[str, Any]) -> bool:
    """True for a masked language model with segments that is older than ``--segments``."""
    several = (settings.get("num_segments") or 0) > 1
    is_masked_lm = settings.get("encoder_layers") is not None  # decoders also have num_segments
    return several and is_masked_lm and settings.get("segments") is None


def settings_by_role(
    checkpoint: Mapping[str, Any],
    roles: Tuple[str, ...] = ("model",),
    options: Optional[Options] = None,
) -> Dict[str, Any]:
    """The settings of a checkpoint's model that have one of *roles*, by default the role "model".

    Checkpoints of an architecture defined with argparse store all flags of the run as the model's;
    flags that are also in another group (task, optimiser, paths) are left out.  A flag newer than
    the checkpoint gets the default, with which the model was trained.  So does a flag without an
    effect on the model, because older versions recorded the preset's value for such flags.

    *options*, on which roles can depend, are by default the settings of the checkpoint itself.
    """
    saved, ours = saved_settings(checkpoint), plug_in_flags()
    complete = dict(saved)
    if needs_segments(saved):
        complete["segments"] = "single"  # older than --segments
    declared = {name: metadata_of(name, ours) for name in {*ours, *complete}}
    if is_ours(saved):
        defaults = {name: flag.metadata["default"] for name, flag in ours.items()}
        younger = [name for name in ours if saved.get(name) is None and defaults[name] is not None]
        complete.update({name: defaults[name] for name in younger})
        unused = unused_settings(Namespace(**complete), declared)
        complete.update({name: defaults[name] for name in unused if name in ours})
    elsewhere, used = _names_elsewhere(checkpoint), options or Namespace(**complete)
    return {
        name: value
        for name, value in complete.items()
        if name not in elsewhere
        and not name.startswith("_")
        and role_in(used, declared[name]) in roles
    }


def _names_elsewhere(checkpoint: Mapping[str, Any]) -> Set[str]:
    groups = checkpoint.get("cfg") or {}
    names = set(groups)
    for group in groups:  # items() of OmegaConf 2.0 fails if a group is a Namespace
        settings = groups[group]
        if group != "model" and isinstance(settings, Mapping):
            names.update(set(settings))
    return names


def differences(before: Mapping[Any, Any], now: Mapping[Any, Any]) -> Dict[Any, Tuple[Any, Any]]:
    """Map each setting that is in both mappings with different values to these two values."""
    common = [name for name in before if name in now]
    return {name: (before[name], now[name]) for name in common if before[name] != now[name]}


def _registered(checkpoint: Mapping[str, Any]) -> bool:
    name = architecture(model_settings(checkpoint))
    return name in ARCH_MODEL_NAME_REGISTRY or name in MODEL_REGISTRY


def stock_twin(checkpoint: Mapping[str, Any]) -> Optional[str]:
    """The fairseq model whose layers have the same names as those of an unregistered architecture.

    Most architectures of other plug-ins, such as IndicTrans2's ``transformer_18_18``, are models of
    fairseq under another name, but some compute something else: only a user can tell.

    Returns:
        the name of the fairseq model; None if the architecture is registered, or no model fits.
    """
    if _registered(checkpoint):
        return None
    state = checkpoint["model"]
    key = "layers.0.self_attn.k_proj.weight"
    twins = [twin for twin, stack in STACKS.items() if stack + key in state]
    if twins == ["transformer_lm"] and any(name.startswith("encoder.") for name in state):
        return None
    return twins[0] if twins else None


def refuse_unknown(path: str, checkpoint: Mapping[str, Any]) -> None:
    """Refuse to build a model whose architecture is not registered."""
    if _registered(checkpoint):
        return
    name, twin, other = architecture(model_settings(checkpoint)), stock_twin(checkpoint), ""
    if twin is not None:
        other = f", or, if it is fairseq's {twin} under another name, --model-overrides "
        other += f"\"{{'arch': '{twin}'}}\""
    raise UsageError(
        f"{path}: is of --arch {name}, which is not registered here; give the --user-dir that "
        f"registers it{other}"
    )
