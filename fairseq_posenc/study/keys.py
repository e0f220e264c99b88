"""What the keys of a plan may hold: functions that return the value or raise ValueError."""

import re
from typing import Any, Callable, Dict, List, Tuple

from fairseq_posenc.flags.usage import near
from fairseq_posenc.study.flags import DATA, Flags, parse_flags


def _text(value: Any) -> str:
    if isinstance(value, (dict, list, bool)):
        raise ValueError("expected a text")
    return " ".join(str(value).split())


def _name(value: Any) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._+-]*", str(value)):
        raise ValueError(
            f"{value!r}: expected letters, digits, '.', '_', '+' and '-', a letter or digit first"
        )
    return str(value)


def _one_of(*names: str) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if value not in names:
            raise ValueError(f"{value}: unknown" + near(str(value), names))
        return str(value)

    return read


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{value}: expected a whole number above 0")
    return value


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


def _systems(value: Any) -> Dict[str, Flags]:
    if not isinstance(value, dict):
        raise ValueError("expected flags by name of the system")
    found = {_name(name): _of(name, _system, flags) for name, flags in value.items()}
    if len({name.lower() for name in found}) < len(found):
        raise ValueError("two names differ only in upper and lower case; rename one")
    return found


def _system(value: Any) -> Flags:
    if not isinstance(value, dict) or DATA not in value:
        return _flags(value)
    own = {flag: setting for flag, setting in value.items() if flag != DATA}
    return {DATA: _text(value[DATA]), **_flags(own)}


def _of(name: str, read: Callable[[Any], Any], value: Any) -> Any:
    try:
        return read(value)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


def _several(read: Callable[[Any], Any]) -> Callable[[Any], Tuple[Any, ...]]:
    def several(value: Any) -> Tuple[Any, ...]:
        found = tuple(map(read, value if isinstance(value, (list, tuple)) else [value]))
        twice = next((v for v in found if found.count(v) > 1), None)
        if twice is not None:
            raise ValueError(f"{twice}: given twice")
        return found

    return several


def _keys(
    needed: Tuple[str, ...] = (), **known: Callable[[Any], Any]
) -> Callable[[Any], Dict[str, Any]]:
    """A mapping with some of the keys *known*, read by these functions, and all *needed* ones."""

    def read(value: Any) -> Dict[str, Any]:
        if not isinstance(value, dict):
            raise ValueError(f"expected some of the keys {', '.join(known)}")
        for key in value:
            if key not in known:
                raise ValueError(f"{key}: unknown key" + near(str(key), list(known)))
        for key in needed:
            if key not in value:
                raise ValueError(f"{key}: missing")
        return {key: _of(key, known[key], setting) for key, setting in value.items()}

    return read


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
    return {flag: list(_several(_text)(values)) for flag in value}


def _tasks(value: Any) -> Dict[str, Flags]:
    names = {name: {} for name in value} if isinstance(value, list) else value
    if not isinstance(names, dict) or not names:
        raise ValueError("expected a list of tasks, or flags by task")
    return {_name(name): _flags(flags) for name, flags in names.items()}


READ: Dict[str, Callable[[Any], Any]] = {
    "name": _name,
    "recipe": _one_of("translation", "masked_lm", "language_model"),
    "data": _or_key(
        "folder",
        _keys(
            ("folder",),
            folder=_text,
            source_lang=_text,
            target_lang=_text,
            tokenizer=_one_of("moses", "none"),
            subwords=_one_of("subword-nmt", "sentencepiece", "none"),
            subword_file=_text,
            references=_text,
            sources=_text,
        ),
    ),
    "base": _flags,
    "systems": _systems,
    "seeds": _several(_seed),
    "title": _text,
    "about": _text,
    "measures": _several(_text),
    "budget": _single(
        _keys(epochs=_count, updates=_count, tokens=_count, hours=_hours),
        "epochs, updates, tokens and hours",
    ),
    "average": _or_key(
        "epochs", _single(_keys(epochs=_count, updates=_count), "epochs and updates")
    ),
    "search": _search,
    "validate": _flags,
    "decode": _flags,
    "finetune": _keys(
        ("data", "tasks"),
        data=_text,
        tasks=_tasks,
        flags=_flags,
        epoch=_one_of("best", "last"),
        lr=_several(_text),
    ),
    "extrapolation": _keys(lengths=_several(_count), last=_count, tokens=_count),
    "subset": _name,
    "gpus": _count,
    "user_dir": _text,
    "speed": _single(_keys(updates=_count), "updates"),
    "baseline": _text,
}
