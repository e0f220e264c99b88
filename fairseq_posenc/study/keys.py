"""What the keys of a plan may hold: functions that return the value or raise ValueError."""

import re
from typing import Any, Callable, Dict, List

from fairseq_posenc.flags.yaml_file import count, keys, named, one_of, plain_name, several, text
from fairseq_posenc.study.flags import DATA, Flags, parse_flags


def _text(value: Any) -> str:
    return " ".join(text(value).split())


def _flags(value: Any) -> Flags:
    if isinstance(value, str):
        return parse_flags(value, "flags")
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError("expected flags, such as {--lr: 5e-4, --fp16: true}")
    found: Flags = {}
    for flag, setting in value.items():
        if not re.match(r"--[a-z]", str(flag)):
            raise ValueError(f"{flag}: is no flag; write --{str(flag).lstrip('-')}")
        if isinstance(setting, (dict, list)) or setting is None:
            raise ValueError(f"{flag}: expected a text, a number, true or false")
        found[str(flag)] = setting if isinstance(setting, bool) else str(setting)
    return found


def _system(value: Any) -> Flags:
    if not isinstance(value, dict) or DATA not in value:
        return _flags(value)
    own = {flag: setting for flag, setting in value.items() if flag != DATA}
    return {DATA: _text(value[DATA]), **_flags(own)}


def _systems(value: Any) -> Dict[str, Flags]:
    found = named(_system, "flags by name of the system")(value)
    if len({name.lower() for name in found}) < len(found):
        raise ValueError("two names differ only in upper and lower case; rename one")
    return found


def _single(read: Callable[[Any], Dict[str, Any]], what: str) -> Callable[[Any], Dict[str, Any]]:
    def single(value: Any) -> Dict[str, Any]:
        found = read(value)
        if len(found) != 1:
            raise ValueError(f"expected one of {what}")
        return found

    return single


def _or_key(key: str, read: Callable[[Any], Dict[str, Any]]) -> Callable[[Any], Dict[str, Any]]:
    """Reads a mapping, or a single value as the mapping with only *key*."""
    return lambda value: read(value if isinstance(value, dict) else {key: value})


def _hours(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
        raise ValueError(f"{value}: expected a number above 0")
    return float(value)


def _seed(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{value}: expected a whole number")
    return value


def _search(value: Any) -> Dict[str, List[str]]:
    values = next(iter(value.values())) if isinstance(value, dict) and len(value) == 1 else []
    if not values:
        raise ValueError("expected one flag with a list of values, such as {--lr: [1e-3, 3e-3]}")
    return {flag: list(several(_text)(values)) for flag in value}


def _tasks(value: Any) -> Dict[str, Flags]:
    if not value:
        raise ValueError("expected a list of tasks, or flags by task")
    names = {name: {} for name in value} if isinstance(value, list) else value
    return named(_flags, "a list of tasks, or flags by task")(names)


READ: Dict[str, Callable[[Any], Any]] = {
    "name": plain_name,
    "recipe": one_of("translation", "masked_lm", "language_model"),
    "data": _or_key(
        "folder",
        keys(
            {
                "folder": _text,
                "source_lang": _text,
                "target_lang": _text,
                "tokenizer": one_of("moses", "none"),
                "subwords": one_of("subword-nmt", "sentencepiece", "none"),
                "subword_file": _text,
                "references": _text,
                "sources": _text,
            },
            needed=("folder",),
        ),
    ),
    "base": _flags,
    "systems": _systems,
    "seeds": several(_seed),
    "title": _text,
    "about": _text,
    "measures": several(_text),
    "budget": _single(
        keys({"epochs": count, "updates": count, "tokens": count, "hours": _hours}),
        "epochs, updates, tokens and hours",
    ),
    "average": _or_key(
        "epochs", _single(keys({"epochs": count, "updates": count}), "epochs and updates")
    ),
    "search": _search,
    "validate": _flags,
    "decode": _flags,
    "finetune": keys(
        {
            "data": _text,
            "tasks": _tasks,
            "flags": _flags,
            "epoch": one_of("best", "last"),
            "lr": several(_text),
        },
        needed=("data", "tasks"),
    ),
    "extrapolation": keys({"lengths": several(count), "last": count, "tokens": count}),
    "subset": plain_name,
    "gpus": count,
    "user_dir": _text,
    "speed": _single(keys({"updates": count}), "updates"),
    "baseline": _text,
}
