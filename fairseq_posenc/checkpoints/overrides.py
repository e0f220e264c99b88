"""Checks of ``--model-overrides``, which must not change what a trained model computes."""

import contextlib
import dataclasses
import logging
from argparse import Namespace
from typing import Any, Dict, Iterable, Mapping, Optional, Set

from fairseq.criterions import CRITERION_DATACLASS_REGISTRY
from fairseq.dataclass.utils import overwrite_args_by_name
from fairseq.models import ARCH_MODEL_NAME_REGISTRY, MODEL_DATACLASS_REGISTRY
from fairseq.registry import REGISTRIES
from fairseq.tasks import TASK_DATACLASS_REGISTRY
from omegaconf import OmegaConf, ValidationError, open_dict

from fairseq_posenc.basics.errors import UsageError, flag_of, near
from fairseq_posenc.checkpoints.reading import model_settings
from fairseq_posenc.checkpoints.settings import (
    heads_of,
    is_ours,
    settings_by_role,
    stock_twin,
    task_of,
)
from fairseq_posenc.configuration.effect import declared_by, lacks, unmet_needs
from fairseq_posenc.configuration.fields import metadata_of, plug_in_flags
from fairseq_posenc.flags.options import SIDES, Options, by_name, option
from fairseq_posenc.flags.settings import check_option, role_in

Values = Mapping[str, Any]
logger = logging.getLogger(__name__)
_TASK = "sentence_prediction"
#: The settings that name the architecture; with a different name, fairseq builds a different model.
_NAMES = ("_name", "arch")
#: Settings of a task that decide what the model reads and what its outputs mean.
_OF_TASK = ("init_token", "separator_token", "regression_target", "pairs")
_BOOLEAN = {"true": True, "1": True, "false": False, "0": False}


def check_overrides(checkpoint: Values, overrides: Values, path: str) -> None:
    """Refuse overrides that would change a setting that is part of the trained model.

    *overrides* map names to values; settings of the model may be nested under the name ``model``.
    """
    flat, flags, settings = _flat(overrides), plug_in_flags(), model_settings(checkpoint)
    used = Namespace(**{**settings, **flat})
    trained = settings_by_role(checkpoint, options=used)
    ours, twin = is_ours(settings), stock_twin(checkpoint)
    for name, value in flat.items():
        role = role_in(used, metadata_of(name, flags))
        what = None
        if name in _NAMES and value not in (settings.get("_name"), settings.get("arch"), twin):
            raise UsageError(
                f"--model-overrides {name}={value!r}: {path} is of --arch "
                f"{settings.get('arch') or settings.get('_name')}, and any other model would "
                "compute something else; leave this override out"
            )
        if name in trained and ours:
            what = None if value == trained[name] else f"was trained with {trained[name]!r}"
        elif name in flags and role == "model" and value is not None:
            what = "was trained without it" if ours else "is not a model of this plug-in"
        elif ours:
            _check_is_known(name, checkpoint, flags)
            if role == "training":
                kept = name.endswith("dropout")
                when = "in training and with --retain-dropout" if kept else "in training only"
                logger.warning("--model-overrides %s=%r: has an effect %s", name, value, when)
        if what is not None:
            raise UsageError(
                f"--model-overrides {name}={value!r}: {path} {what}, and this setting is part "
                "of the trained model; to change it, fine-tune with --finetune-from-model "
                f"{path} {flag_of(name)} {value}"
            )


def apply_overrides(checkpoint: Values, overrides: Optional[Values], path: str) -> None:
    """Check and apply overrides of a checkpoint's settings, in place."""
    if not overrides:
        return
    overrides = _converted(overrides, _saved_values(checkpoint))
    check_overrides(checkpoint, overrides, path)
    overrides = _rename(checkpoint, overrides)
    if not _change_task(checkpoint, overrides, path):
        _check_task(checkpoint, overrides, path)
    overwrite_args_by_name(checkpoint["cfg"], overrides)
    _check_head(checkpoint, path)
    model: Any = checkpoint["cfg"].model
    _check_kept_layers(model)
    if OmegaConf.is_config(model) and "position_encoding" in model:
        _apply_to_ours(model, _flat(overrides))


def _apply_to_ours(model: Any, overrides: Values) -> None:
    """Set and check *overrides* in the settings of a model of the plug-in, in place."""
    flags = plug_in_flags()
    ours = {name: value for name, value in overrides.items() if name in flags}
    with open_dict(model):  # fairseq ignores flags newer than the checkpoint
        for name, value in ours.items():
            try:
                model[name] = value
            except ValidationError as error:  # the value has the wrong type
                reason = str(error).splitlines()[0]
                raise UsageError(f"--model-overrides {name}={value!r}: {reason}") from error
    for name in overrides:
        check_option(model, name, metadata_of(name, flags))
    family = MODEL_DATACLASS_REGISTRY.get(ARCH_MODEL_NAME_REGISTRY.get(model._name, model._name))
    declared = {} if family is None else declared_by(family)
    for name, value in ours.items():
        idle = name not in declared or value in (None, declared[name].get("default"))
        unmet = None if idle else unmet_needs(name, model, declared)
        if unmet is not None:  # for example, a rotary scaling with ALiBi
            raise UsageError(
                f"--model-overrides {name}={value!r}: has no effect {lacks(unmet, model)}; leave "
                "it out"
            )


def _rename(checkpoint: Values, overrides: Values) -> Dict[str, Any]:
    """Give a model of an unregistered architecture the name in *overrides*, in place.

    Returns:
        the overrides without that name, because fairseq would also apply it to task and criterion.
    """
    model: Any = checkpoint["cfg"].model
    twin = stock_twin(checkpoint)
    if twin is not None and twin in [overrides.get(name) for name in _NAMES]:
        with open_dict(model) if OmegaConf.is_config(model) else contextlib.nullcontext():
            model._name = model.arch = twin
    return {name: value for name, value in overrides.items() if name not in _NAMES}


def _change_task(checkpoint: Values, overrides: Values, path: str) -> bool:
    """If *overrides* ask for ``--task sentence_prediction``, change the checkpoint's task.

    ``fairseq-validate`` builds the task that a checkpoint records and ignores its own ``--task``.
    An imported classifier records the task ``masked_lm``, because fairseq did not train it.

    Returns:
        whether the task was replaced.
    """
    cfg = checkpoint["cfg"]
    if overrides.get("task") != _TASK or option(cfg.task, "_name") != "masked_lm":
        return False
    heads = heads_of(checkpoint)
    if not heads:
        raise UsageError(
            f"--task {_TASK}: {path} has no classification head; fine-tune it first, with "
            f"--finetune-from-model {path}"
        )
    criterion = overrides.get("criterion") or _TASK
    with open_dict(cfg):
        for group, name, registry in (
            ("task", _TASK, TASK_DATACLASS_REGISTRY),
            ("criterion", criterion, CRITERION_DATACLASS_REGISTRY),
        ):
            if name in registry:
                cfg[group] = OmegaConf.structured(registry[name]())
                cfg[group]._name = name
        only = next(iter(heads)) if len(heads) == 1 else cfg.task.classification_head_name
        name = overrides.get("classification_head_name", only)
        cfg.task.update(max_positions=cfg.model.max_positions, num_classes=heads.get(name, 0))
        for group in (cfg.task, cfg.criterion):
            if "classification_head_name" in group:
                group.classification_head_name = name
    return True


def _check_task(checkpoint: Values, overrides: Values, path: str) -> None:
    """Refuse task settings that would change what the model reads, or what its outputs mean."""
    trained = task_of(checkpoint)
    for name, value in _flat(overrides).items():
        before = option(trained, name)
        if name in _OF_TASK and hasattr(trained, name) and value not in (before, "none"):
            raise UsageError(
                f"{flag_of(name)} {value}: {path} was trained with "
                f"{'none' if before is None else before}; a different value would change what "
                "the model reads or what its outputs mean; drop the flag"
            )
    for group in ("task", "criterion"):
        asked, before = overrides.get(group), option(option(checkpoint["cfg"], group), "_name")
        if isinstance(asked, str) and None is not before != asked:
            logger.warning(
                "%s %s: has no effect; %s is used with %s, as in its training",
                *(flag_of(group), asked, path, before),
            )


def _check_head(checkpoint: Values, path: str) -> None:
    """Refuse a classification head that the checkpoint lacks: it would be used untrained."""
    task, heads = option(checkpoint["cfg"], "task"), heads_of(checkpoint)
    name, classes = option(task, "classification_head_name"), option(task, "num_classes")
    if name is None or not heads:
        return
    if name not in heads:
        raise UsageError(
            f"--classification-head-name {name}: {path} has the heads {', '.join(heads)}; give one"
        )
    if option(task, "_name") == _TASK and classes != heads[name]:
        raise UsageError(
            f"--num-classes {classes}: {path} has {heads[name]} classes in its head {name}; drop "
            "the flag"
        )


def _check_kept_layers(model: Options) -> None:
    """Refuse ``layers_to_keep`` for one side only: fairseq would drop all layers of the other."""
    kept = {f"{side}_layers_to_keep": option(model, f"{side}_layers") for side in SIDES}
    if not any(option(model, name) for name in kept):
        return
    for name, number in kept.items():
        value, layers = option(model, name), [str(layer) for layer in range(number or 0)]
        if value is None and layers:
            raise UsageError(
                f"--model-overrides {name}: fairseq drops all layers of a side without this "
                f"setting; also give {name}='{','.join(layers)}'"
            )
        known = isinstance(value, str) and set(value.split(",")) <= set(layers)
        if value is not None and not known:
            raise UsageError(
                f"--model-overrides {name}={value!r}: must be layer numbers such as "
                f"'{','.join(layers)}'"
            )


def _saved_values(checkpoint: Values) -> Dict[str, Any]:
    values: Dict[str, Any] = {}
    groups = checkpoint.get("cfg") or {}
    for group in groups:
        if isinstance(groups[group], (Mapping, Namespace)):
            values.update(by_name(groups[group]))
    return values


def _converted(overrides: Values, saved: Values) -> Dict[str, Any]:
    """Convert strings in *overrides* to the type of the saved value, if it is a number or bool."""
    converted = {}
    for name, value in overrides.items():
        kind = type(saved.get(name))
        if isinstance(value, dict):
            value = _converted(value, saved)
        elif isinstance(value, str) and kind in (bool, int, float):
            try:
                value = _BOOLEAN[value.lower()] if kind is bool else kind(value)
            except (ValueError, KeyError) as error:
                raise UsageError(
                    f"--model-overrides {name}={value!r}: must be of type {kind.__name__}"
                ) from error
        converted[name] = value
    return converted


def _flat(overrides: Values) -> Dict[str, Any]:
    """Overrides by name, including those nested under a group such as ``model``."""
    flat: Dict[str, Any] = {}
    for name, value in overrides.items():
        flat.update(value if isinstance(value, dict) else {name: value})
    for name, value in flat.items():
        if not isinstance(name, str) or isinstance(value, dict):
            raise UsageError(
                f"--model-overrides {{{name!r}: {value!r}}}: must map names of settings to values"
            )
    return flat


def _check_is_known(name: str, checkpoint: Values, flags: Iterable[str]) -> None:
    known = [*_saved_values(checkpoint), *(checkpoint.get("cfg") or {}), *flags]
    # fairseq-validate passes its whole command line as overrides, and fairseq's from_pretrained
    # passes the tokeniser and the subwords
    others = [each["dataclass_registry"] for each in REGISTRIES.values()]
    if name in known or name in _declared([TASK_DATACLASS_REGISTRY, *others]):
        return
    if name in _declared([MODEL_DATACLASS_REGISTRY]):
        arch = model_settings(checkpoint).get("_name")
        raise UsageError(f"--model-overrides {name}: has no effect on {arch}; leave it out")
    raise UsageError(f"--model-overrides {name}: unknown setting{near(name, known)}")


def _declared(registries: Iterable[Mapping[str, Any]]) -> Set[str]:
    declared = [flags for registry in registries for flags in registry.values() if flags]
    return {field.name for flags in declared for field in dataclasses.fields(flags)}
