"""Rules for the entries of a checkpoint; every file is checked when it is read."""

import glob
import os
import reprlib
from argparse import Namespace
from enum import Enum
from typing import Any, Callable, Dict, Mapping, Tuple

from fairseq.dataclass.configs import FairseqConfig
from fairseq.models import ARCH_MODEL_NAME_REGISTRY, MODEL_DATACLASS_REGISTRY
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.configuration.stock import COUNTS, STOCK_RANGES

#: A test of a value, and a description of the values that pass it.
_Rule = Tuple[Callable[[Any], bool], str]


def _type(words: str, *types: type) -> _Rule:
    return lambda value: isinstance(value, types), words


def _count(bounds: Mapping[str, Any]) -> _Rule:
    at_least, at_most = bounds["at_least"], bounds["at_most"]

    def passes(value: Any) -> bool:
        if isinstance(value, str):
            return value.startswith("[")  # one number per layer, in convolutional models
        return value is None or (isinstance(value, int) and at_least <= value <= at_most)

    return passes, f"a whole number from {at_least} to {at_most}"


def _by_name(settings: Any) -> Any:
    return vars(settings) if isinstance(settings, Namespace) else settings


def _is_model(settings: Any) -> bool:
    names = _by_name(settings)
    return isinstance(names, dict) and isinstance(names.get("_name") or names.get("arch"), str)


def _are_digests(known: Any) -> bool:
    return isinstance(known, dict) and all(
        isinstance(each, dict) and {"size", "digest"} <= set(each) for each in known.values()
    )


_NONE = type(None)
_DICTIONARY = _type("a dictionary", dict)
_OPTIONAL = _type("a dictionary or None", dict, _NONE)
_WHOLE: _Rule = (lambda value: isinstance(value, int) and value >= 0, "a whole number from 0")
_NUMBER = _type("a number or None", int, float, _NONE)
_SUM = _type("a number", int, float, Tensor)  # a tensor if several processes trained
_TEXT = _type("text or None", str, _NONE)

#: Rules, keyed by an entry's path, containers before contents; absent entries are not checked.
_RULES: Dict[str, _Rule] = {
    "args": (
        lambda args: args is None or _is_model(args),
        "a dictionary of a model's settings, with its name, or None",
    ),
    "cfg": (
        lambda cfg: cfg is None or (isinstance(cfg, dict) and "model" in cfg),
        "a dictionary of groups of settings, with the group 'model'",
    ),
    **{
        f"cfg.{group}": _type("a dictionary of settings, or None", dict, Namespace, _NONE)
        for group in FairseqConfig.__dataclass_fields__
        if group != "_name"
    },
    "cfg.model": (_is_model, "a dictionary of a model's settings, with its name"),
    **{
        f"{place}.{name}": _count(COUNTS[name]) if name in COUNTS else _NUMBER
        for place in ("args", "cfg.model")
        for name in STOCK_RANGES
    },
    "cfg.task": _type("a dictionary of settings", dict, Namespace),
    "cfg.task._name": _TEXT,
    "cfg.task.data": _TEXT,
    "optimizer_history": (
        lambda history: isinstance(history, list) and bool(history),
        "a list, with an entry for each optimizer",
    ),
    "optimizer_history.-1": _DICTIONARY,
    "optimizer_history.-1.num_updates": _WHOLE,
    "optimizer_history.-1.lr_scheduler_state": _DICTIONARY,
    "optimizer_history.-1.lr_scheduler_state.lr": _SUM,
    "last_optimizer_state": _OPTIONAL,
    "task_state": _OPTIONAL,
    "extra_state": _DICTIONARY,
    "extra_state.previous_training_time": _SUM,
    "extra_state.train_iterator": _OPTIONAL,
    "extra_state.train_iterator.epoch": _WHOLE,
    "extra_state.train_iterator.iterations_in_epoch": _WHOLE,
    "extra_state.fairseq_posenc": _OPTIONAL,
    "extra_state.fairseq_posenc.languages": _type("a list", list),
    "extra_state.fairseq_posenc.dictionaries": (_are_digests, "a dictionary of sizes and digests"),
}
#: Rules for flags of this plug-in's models, by type; if several types fit, the last rule applies.
_BY_TYPE: Dict[type, _Rule] = {
    int: _type("a whole number or None", int, _NONE),
    bool: _type("True or False, or None", int, _NONE),
    float: _NUMBER,
    str: _TEXT,
    Enum: _TEXT,
}


def check_entries(checkpoint: Mapping[str, Any], path: str) -> None:
    """Refuse the checkpoint read from *path* if an entry is not of the kind that fairseq writes."""
    _check(checkpoint, _RULES, path)
    if checkpoint.get("cfg") is not None:
        _check(checkpoint, _declared(_by_name(checkpoint["cfg"]["model"])), path)


def remedy(path: str) -> str:
    """Advice about a damaged checkpoint; it names the newest other checkpoint in the folder."""
    beside = glob.glob(os.path.join(glob.escape(os.path.dirname(path)), "checkpoint*.pt"))
    newest = sorted((other for other in beside if other != path), key=os.path.getmtime)[-1:]
    named = "".join(f", such as {other}," for other in newest)
    return f"use an earlier checkpoint{named} or copy the file again"


def _declared(settings: Mapping[str, Any]) -> Dict[str, _Rule]:
    """Rules for the flags that a model of this plug-in declares; none for other models."""
    name = settings.get("_name") or settings.get("arch")
    family: Any = MODEL_DATACLASS_REGISTRY.get(ARCH_MODEL_NAME_REGISTRY.get(name, name))
    flags = {} if family is None else family.__dataclass_fields__
    return {
        f"cfg.model.{flag}": rule
        for flag, field in flags.items()
        for kind, rule in _BY_TYPE.items()
        for declared in getattr(field.type, "__args__", (field.type,))[:1]  # inside Optional
        if "position_encoding" in flags and flag not in STOCK_RANGES
        if isinstance(declared, type) and issubclass(declared, kind)
    }


def _check(checkpoint: Mapping[str, Any], rules: Mapping[str, _Rule], path: str) -> None:
    for place, (passes, words) in rules.items():
        try:
            value = _at(checkpoint, place)
        except LookupError:
            continue
        if not passes(value):
            raise UsageError(
                f"{path}: its entry {place} is {reprlib.repr(value)}, but has to be {words}; "
                f"{remedy(path)}"
            )


def _at(value: Any, place: str) -> Any:
    """The entry at the path *place*, in which -1 is the last of a list; LookupError if absent."""
    for name in place.split("."):
        value = _by_name(value)
        if not isinstance(value, (dict, list)):
            raise LookupError(name)
        value = value[int(name)] if isinstance(value, list) else value[name]
    return value
