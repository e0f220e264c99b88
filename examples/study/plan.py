"""Read the plan of a study, and check the values of its keys.

The Snakefile and the scripts beside it import this; neither PyTorch nor fairseq is imported.
"""

import difflib
import re
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Set

import yaml

Flags = Dict[str, Any]  # keyed by flag; True: a flag without value; False: drop a flag of the base


class Wrong(Exception):
    """A mistake in a plan; the message is one line."""


# --- the file


class _Loader(yaml.SafeLoader):
    """Keeps numbers as they are written (1e-3), and refuses a key that occurs twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> Dict[Any, Any]:
        keys = [key.value for key, _ in node.value if key.value != "<<"]
        for key in keys:
            if keys.count(key) > 1:
                raise Wrong(f"{key}: given twice")
        return super().construct_mapping(node, deep)


_Loader.yaml_implicit_resolvers = {
    start: [(tag, form) for tag, form in resolvers if re.search("bool|null|merge", tag)]
    for start, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def need(true: Any, text: str) -> None:
    """Raise ``Wrong(text)`` if *true* is false."""
    if not true:
        raise Wrong(text)


def _text(value: Any) -> str:
    need(isinstance(value, (str, bool)) and value != "", f"{value}: expected a text")
    return " ".join(str(value).split())


def _name(value: Any) -> str:
    fits = isinstance(value, str) and re.fullmatch(r"\w[\w.+-]{0,99}", value)
    need(fits, f"{value}: expected letters, digits and - . _ +")
    return str(value)


def _part(value: Any) -> str:
    name, at, update = str(value).partition("@")
    return _name(name) + (f"@{_whole(update)}" if at else "")


def _whole(value: Any) -> int:
    fits = isinstance(value, str) and value.isdecimal() and int(value) > 0
    need(fits, f"{value}: expected a whole number above 0")
    return int(value)


def _seed(value: Any) -> int:
    fits = isinstance(value, str) and value.isdecimal() and int(value) < 2**32
    need(fits, f"{value}: expected a whole number from 0 to {2**32 - 1:,}")
    return int(value)


def _hours(value: Any) -> str:
    fits = re.fullmatch(r"\d*\.?\d+", str(value)) and float(value) > 0
    need(fits, f"{value}: expected a number above 0")
    return str(value)


def _flags(value: Any) -> Flags:
    need(isinstance(value or {}, dict), "expected flags, such as {--lr: 5e-4, --fp16: true}")
    for flag, setting in (value or {}).items():
        need(re.fullmatch(r"--[a-z][\w-]*", str(flag)), f"{flag}: is not a flag such as --lr")
        need(isinstance(setting, (str, bool)), f"{flag}: expected a text, a number, true or false")
    return dict(value or {})


def _system(value: Any) -> Flags:
    data = {"data": _text(value["data"])} if isinstance(value, dict) and "data" in value else {}
    flags = {k: v for k, v in value.items() if k != "data"} if data else value
    return {**data, **_flags(flags)}


def _several(read: Callable[[Any], Any]) -> Callable[[Any], List[Any]]:
    def several(value: Any) -> List[Any]:
        found = [read(one) for one in (value if isinstance(value, list) else [value])]
        need(found, "expected at least one")
        need(len(set(found)) == len(found), f"{', '.join(map(str, found))}: one is given twice")
        return found

    return several


def _seeds(value: Any) -> List[int]:
    need(isinstance(value, list), f"{value}: expected a list of seeds, such as [11, 12]")
    return list(_several(_seed)(value))


def _named(read: Callable[[Any], Any]) -> Callable[[Any], Dict[str, Any]]:
    def named(value: Any) -> Dict[str, Any]:
        need(value and isinstance(value, dict), "expected names, with settings indented below")
        names = [_name(name).lower() for name in value]
        need(len(set(names)) == len(names), "two names differ only in upper and lower case")
        return {name: _in(name, read, one) for name, one in value.items()}

    return named


def _keys(**known: Callable[[Any], Any]) -> Callable[[Any], Dict[str, Any]]:
    def keys(value: Any) -> Dict[str, Any]:
        need(isinstance(value, dict), f"expected a mapping with keys among {', '.join(known)}")
        for key in value:
            close = difflib.get_close_matches(str(key), known, 1)
            instead = f"did you mean {close[0]}?" if close else f"known: {', '.join(known)}"
            need(key in known, f"{key}: no such key; {instead}")
        return {key: _in(key, known[key], one) for key, one in value.items() if one is not None}

    return keys


def _in(where: str, read: Callable[[Any], Any], value: Any) -> Any:
    try:
        return read(value)
    except Wrong as error:
        raise Wrong(f"{where}: {error}") from None


def _one_of(**known: Callable[[Any], Any]) -> Callable[[Any], Dict[str, Any]]:
    def one_of(value: Any) -> Dict[str, Any]:
        need(isinstance(value, dict) and len(value) == 1, f"expected one of {', '.join(known)}")
        return _keys(**known)(value)

    return one_of


def _choice(*known: str) -> Callable[[Any], str]:
    def choice(value: Any) -> str:
        need(value in known, f"{value}: expected one of {', '.join(known)}")
        return str(value)

    return choice


def _data(value: Any) -> Dict[str, str]:
    names = "folder source_lang target_lang references sources choices documents".split()
    found = _keys(**dict.fromkeys(names, _text))
    value = found(value) if isinstance(value, dict) else {"folder": _text(value)}
    need("folder" in value, "folder: missing")
    return dict(value)


def _search(value: Any) -> Dict[str, List[str]]:
    fits = isinstance(value, dict) and len(value) == 1
    need(fits, "expected one flag with a list of values, such as {--lr: [1e-3, 3e-3]}")
    return {flag: _several(_text)(values) for flag, values in value.items()}


def _edges(value: Any) -> List[str]:
    found = _several(_text)(value)
    need(len(found) == 2, f"{', '.join(found)}: expected a value below the search and one above")
    return found


def _tasks(read: Callable[[Any], Any]) -> Callable[[Any], Dict[str, Any]]:
    """A function that reads a list of names, or settings keyed by name."""
    named = _named(lambda one: read(one or {}))
    return lambda value: named(dict.fromkeys(value) if isinstance(value, list) else value)


def lengths(value: Any) -> List[int]:
    """Parse lengths such as ``1-8`` or ``[1-19:2, 30]``, and return them in increasing order."""
    found: Set[int] = set()
    for part in ",".join(value if isinstance(value, list) else [_text(value)]).split(","):
        match = re.fullmatch(r"\s*(\d+)(?:-(\d+)(?::([1-9]\d*))?)?\s*", part)
        need(match, f"{part}: expected lengths, such as 1-20,30 or 1-19:2")
        first, last, step = match.groups() if match else ("", "", "")
        found.update(range(int(first), int(last or first) + 1, int(step or 1)))
    return sorted(found)


_OF_TASK: Dict[str, Any] = {"lengths": lengths, "test_lengths": lengths, "samples": _whole}
_COUNTS = dict.fromkeys(("valid_samples", "test_samples", "seed"), _whole)
_FAMILIES = _choice("language_modeling", "translation", "masked_lm")
_EXTRAPOLATION = _keys(lengths=_several(_whole), last=_whole, tokens=_whole)
_FINETUNE = _keys(
    data=_text,
    tasks=_tasks(_flags),
    flags=_flags,
    epoch=_choice("best", "last"),
    lr=_several(_text),
)

#: The keys that only some recipes have, by recipe.
RECIPES: Dict[str, Dict[str, Callable[[Any], Any]]] = {
    "translation": {"decode": _flags, "subset": _several(_part)},
    "masked_lm": {"finetune": _FINETUNE},
    "language_model": {
        "extrapolation": _EXTRAPOLATION,
        "subset": _several(_part),
        "words": _named(_whole),
    },
    "generated": {
        "generated": _keys(tasks=_tasks(_keys(**_OF_TASK)), family=_FAMILIES, **_COUNTS, **_OF_TASK)
    },
    "documents": {"decode": _flags, "extrapolation": _EXTRAPOLATION},
}
KEYS: Dict[str, Callable[[Any], Any]] = {
    "name": _name,
    "recipe": _choice(*RECIPES),
    "data": _data,
    "base": _flags,
    "systems": _named(_system),
    "seeds": _several(_seed),
    "title": _text,
    "about": _text,
    "measures": _several(_name),
    "budget": _one_of(epochs=_whole, updates=_whole, tokens=_whole, hours=_hours),
    "average": _one_of(epochs=_whole, updates=_whole),
    "search": _search,
    "search_edges": _edges,
    "search_seeds": _seeds,
    "validate": _flags,
    "baseline": _name,
    "gpus": _whole,
    "user_dir": _text,
}
USUAL: Dict[str, Any] = {"title": "", "about": "", "measures": [], "average": {}, "search": {}}
USUAL.update(search_edges=[], validate={}, decode={}, finetune={}, generated={}, extrapolation={})
USUAL.update(subset=[], words={}, gpus=1, user_dir="", baseline="")

#: Flags that the study sets itself, and the key of the plan to use instead.
RESERVED = {
    "--seed": "seeds",
    **dict.fromkeys(("--max-update", "--max-epoch", "--stop-time-hours"), "budget"),
    **dict.fromkeys(("--cpu", "--distributed-world-size"), "snakemake's --config gpus="),
    "--user-dir": "user_dir",
    **dict.fromkeys(("--save-dir", "--restore-file", "--log-file", "--log-format"), "nothing"),
    **dict.fromkeys(("--path", "--gen-subset", "--results-path"), "nothing"),
}


def load(path: str, base: Optional[Flags] = None) -> Dict[str, Any]:
    """Read a plan.

    Args:
        base: flags that replace flags of the plan's base.

    Raises:
        Wrong: the message names the file, the key, its value, and what would work.
    """
    try:
        found = yaml.load(Path(path).read_text(encoding="utf-8"), Loader=_Loader)
        return {"name": Path(path).stem, **_checked(found, base or {})}
    except Wrong as error:
        raise Wrong(f"{path}: {error}") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise Wrong(f"{path}: {' '.join(str(error).split())}") from None


def _checked(found: Any, base: Flags) -> Dict[str, Any]:
    recipe = found.get("recipe") if isinstance(found, dict) else None
    plan = _keys(**{**KEYS, **RECIPES.get(str(recipe), {})})(found)
    for key in ("recipe", "data", "base", "systems", "seeds", "budget"):
        need(plan.get(key), f"{key}: missing; see the plans in examples/study")
    plan = {**USUAL, "search_seeds": plan["seeds"][:1], **plan}
    plan["base"].update({flag: v if isinstance(v, bool) else str(v) for flag, v in base.items()})
    given = {key: plan[key] for key in ("base", "validate", "decode", "search")}
    given.update({f"systems: {name}": flags for name, flags in plan["systems"].items()})
    for where, flags in given.items():
        for flag in flags:
            need(flag not in RESERVED, f"{where}: {flag}: give {RESERVED.get(flag)} instead")
    need(plan["search"] or not plan["search_edges"], "search_edges: needs search")
    known = ", ".join(plan["systems"])
    fits = not plan["baseline"] or plan["baseline"] in plan["systems"]
    need(fits, f"baseline: {plan['baseline']}: no such system; known: {known}")
    for key in {"documents": ("choices", "documents")}.get(plan["recipe"], ()):
        need(key in plan["data"], f"data: {key}: missing; see documents.yaml")
    early = next((part for part in plan["subset"] if "@" in part), "")
    fits = not early or plan["average"].get("updates", 1) > 1
    need(fits, f"subset: {early}: needs averaged checkpoints, as in average: {{updates: 5}}")
    if plan["recipe"] == "generated":
        need(plan["generated"].get("tasks"), "generated: tasks: missing; give [copy, reverse]")
        need(not plan["average"], "average: is not possible for the recipe generated")
        for name in plan["generated"]["tasks"]:
            one = generated(plan, name)
            for key in ("lengths", "test_lengths"):
                need(key in one, f"generated: {name}: {key}: missing; give for example 1-8")
            longest = max(one["lengths"])
            fits = {length > longest for length in one["test_lengths"]} == {True, False}
            need(fits, f"generated: {name}: test_lengths: need lengths up to {longest} and beyond")
    return plan


def generated(plan: Dict[str, Any], task: str) -> Dict[str, Any]:
    """The settings of a generated task: its own, and the settings that all tasks share."""
    shared = {key: value for key, value in plan["generated"].items() if key != "tasks"}
    return {"family": "language_modeling", **shared, **plan["generated"]["tasks"][task]}
