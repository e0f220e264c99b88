"""Checks of ``--model-overrides``, which must not change what a trained model computes."""

import dataclasses
import re
from argparse import Namespace
from typing import Any, Dict, Iterable, Mapping, Optional, Set

from fairseq.criterions import CRITERION_DATACLASS_REGISTRY
from fairseq.dataclass.utils import overwrite_args_by_name
from fairseq.models import MODEL_DATACLASS_REGISTRY
from fairseq.registry import REGISTRIES
from fairseq.tasks import TASK_DATACLASS_REGISTRY
from omegaconf import OmegaConf, open_dict

from fairseq_posenc.basics.errors import UsageError, flag_of
from fairseq_posenc.checkpoints.reading import model_settings
from fairseq_posenc.checkpoints.settings import is_ours, trained_settings
from fairseq_posenc.configuration.fields import metadata_of, plug_in_flags
from fairseq_posenc.flags.settings import check_option
from fairseq_posenc.flags.usage import near
from fairseq_posenc.layers.compiled import check_compiled

Overrides = Optional[Dict[str, Any]]
_TASK = "sentence_prediction"
_OUTPUT = re.compile(r"classification_heads\.[^.]+\.out_proj\.weight$")
_BOOLEAN = {"true": True, "1": True, "false": False, "0": False}


def check_overrides(checkpoint: Mapping[str, Any], overrides: Overrides, path: str) -> None:
    """Refuse overrides of settings that are part of the trained model, unless they agree with it.

    Args:
        checkpoint: the contents of the file.
        overrides: values by name; settings of the model can be in a dictionary ``model``.
        path: the file, for error messages.

    Raises:
        UsageError: naming the first such setting, or a misspelt one.
    """
    trained, own = trained_settings(checkpoint), plug_in_flags()
    ours = is_ours(model_settings(checkpoint))
    for name, value in _flat(overrides).items():
        if name in trained and ours:
            if value != trained[name]:
                raise _refused(name, value, path, f"was trained with {trained[name]!r}")
        elif name in own and own[name].metadata["role"] == "model" and value is not None:
            what = "was trained without it" if ours else "is not a model of this plug-in"
            raise _refused(name, value, path, what)
        elif ours:
            _check_spelling(name, checkpoint, own)


def apply_overrides(checkpoint: Mapping[str, Any], overrides: Overrides, path: str) -> None:
    """Check and apply overrides of a checkpoint's settings, in place.

    Args:
        checkpoint: the contents of the file, as fairseq reads it.
        overrides: as for :func:`check_overrides`.
        path: the file, for error messages.

    Raises:
        UsageError: a setting is part of the trained model, misspelt, or out of range.
    """
    if not overrides:
        return
    overrides = _converted(overrides, _saved_values(checkpoint))
    check_overrides(checkpoint, overrides, path)
    _change_task(checkpoint, overrides, path)
    overwrite_args_by_name(checkpoint["cfg"], overrides)
    model: Any = checkpoint["cfg"].model
    if OmegaConf.is_config(model) and "position_encoding" in model:
        with open_dict(model):  # fairseq ignores flags newer than the checkpoint
            known = plug_in_flags()
            model.update({name: v for name, v in _flat(overrides).items() if name in known})
        for name in _flat(overrides):
            check_option(model, name, metadata_of(name, known))
        if "compile_layers" in _flat(overrides):
            check_compiled(model)


def _change_task(checkpoint: Mapping[str, Any], overrides: Mapping[str, Any], path: str) -> None:
    """Replace the task of a checkpoint by ``--task sentence_prediction``, in place, if given.

    ``fairseq-validate`` builds the task that a checkpoint records and ignores its own ``--task``.
    An imported classifier records the task ``masked_lm``, since it was not trained by fairseq.

    Args:
        checkpoint: the contents of the file, as fairseq reads it.
        overrides: the flags of the command, by name; flags of the task are applied later.
        path: the file, for the error message.

    Raises:
        UsageError: the model has no classification head.
    """
    cfg = checkpoint["cfg"]
    if overrides.get("task") != _TASK or getattr(cfg.task, "_name", None) != "masked_lm":
        return
    sizes = [len(value) for name, value in checkpoint["model"].items() if _OUTPUT.match(name)]
    if not sizes:
        raise UsageError(
            f"--task {_TASK}: {path} has no classification head; fine-tune it first, with "
            f"--finetune-from-model {path}"
        )
    criterion = overrides.get("criterion") or _TASK
    chosen = {
        "task": (_TASK, TASK_DATACLASS_REGISTRY),
        "criterion": (criterion, CRITERION_DATACLASS_REGISTRY),
    }
    with open_dict(cfg):
        for group, (name, registry) in chosen.items():
            if name in registry:
                cfg[group] = OmegaConf.structured(registry[name]())
                cfg[group]._name = name
        cfg.task.update(max_positions=cfg.model.max_positions, num_classes=sizes[0])


def _saved_values(checkpoint: Mapping[str, Any]) -> Dict[str, Any]:
    found: Dict[str, Any] = {}
    for group in (checkpoint.get("cfg") or {}).values():
        if isinstance(group, Mapping):
            found.update((name, group.get(name)) for name in group)
        elif isinstance(group, Namespace):
            found.update(vars(group))
    return found


def _converted(overrides: Dict[str, Any], saved: Mapping[str, Any]) -> Dict[str, Any]:
    """Overrides with text turned into the type of the saved value, as the command line does."""
    return {
        name: _converted(value, saved)
        if isinstance(value, dict)
        else _convert(name, value, saved.get(name))
        for name, value in overrides.items()
    }


def _convert(name: str, value: Any, saved: Any) -> Any:
    if not isinstance(value, str) or not isinstance(saved, (bool, int, float)):
        return value
    try:
        return _BOOLEAN[value.lower()] if isinstance(saved, bool) else type(saved)(value)
    except (ValueError, KeyError) as error:
        raise UsageError(
            f"--model-overrides {name}={value!r}: must be of type {type(saved).__name__}"
        ) from error


def _flat(overrides: Overrides) -> Dict[str, Any]:
    flat = dict(overrides or {})
    nested = flat.pop("model", None)
    return {**flat, **nested} if isinstance(nested, dict) else flat


def _refused(name: str, value: object, path: str, what: str) -> UsageError:
    return UsageError(
        f"--model-overrides {name}={value!r}: {path} {what}, and that is part of the trained "
        f"model; to change it, train on with --finetune-from-model {path} {flag_of(name)} {value}"
    )


def _check_spelling(name: str, checkpoint: Mapping[str, Any], own: Iterable[str]) -> None:
    known = [*_saved_values(checkpoint), *(checkpoint.get("cfg") or {}), *own]
    if name not in known and name not in _registered():
        raise UsageError(f"--model-overrides {name}: unknown setting{near(name, known)}")


def _registered() -> Set[str]:
    """The flags of all of fairseq's tasks, models, criterions, ways to split text, and so on.

    ``fairseq-validate`` overrides settings with everything on its command line, and fairseq's
    ``from_pretrained`` with the tokeniser and the subwords.
    """
    others = [registry["dataclass_registry"] for registry in REGISTRIES.values()]
    registries = (TASK_DATACLASS_REGISTRY, MODEL_DATACLASS_REGISTRY, *others)
    declared = [flags for registry in registries for flags in registry.values() if flags]
    return {field.name for flags in declared for field in dataclasses.fields(flags)}
