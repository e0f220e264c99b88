"""Plans of studies: the YAML file, and what it may contain; imports neither PyTorch nor fairseq."""

import re
import shlex
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Sequence, Tuple

import yaml

from fairseq_posenc.errors import UsageError
from fairseq_posenc.files import FilePath
from fairseq_posenc.usage import near

Flags = Dict[str, Any]  # "--flag": value, or True for a flag without one

DATA = "data"  # among the flags of a system: its own data folder
#: Flags that a study sets itself, and what to write instead.
RESERVED = {
    "--seed": "seeds",
    **dict.fromkeys(("--max-update", "--max-epoch", "--stop-time-hours"), "budget"),
    **dict.fromkeys(("--cpu", "--distributed-world-size"), "--devices on the command line"),
    "--user-dir": "user_dir",
    **dict.fromkeys(
        ("--save-dir", "--restore-file", "--log-file", "--log-format", "--path", "--gen-subset"),
        "nothing: the study sets it",
    ),
}


class Plan(NamedTuple):
    """A plan, checked for its form.

    Args:
        name: names the study's folder.
        recipe: ``translation``, ``masked_lm`` or ``language_model``.
        data: ``folder``, the output of fairseq-preprocess, and how to read its text.
        base: flags of fairseq-train that all systems share.
        systems: further flags by name of the system; False drops a flag of the base, and ``data``
            is another data folder than that of the others.
        seeds: seeds of the training.
        title: one line for readers.
        about: what is compared and why.
        measures: names of the scores to compare; all, if empty.
        budget: one of ``epochs``, ``updates``, ``tokens`` and ``hours``.
        average: number of last ``epochs`` or ``updates`` checkpoints to average.
        search: values to try by flag; each system gets the best on the validation set.
        validate: flags of the validation.
        decode: flags of fairseq-generate.
        finetune: ``data``, the folder of the tasks, ``tasks``, ``flags`` and ``epoch``.
        extrapolation: ``lengths``, ``last`` and ``tokens`` of the contexts to read.
        subset: the part of the data that is scored.
        gpus: GPUs of a run; with fewer, batches are gathered in several passes.
        user_dir: a folder of the user's with own encodings.
        speed: ``updates`` of each system to measure its speed by, when nothing else is running.
        baseline: the system that the others are compared with; the first, if empty.
    """

    name: str
    recipe: str
    data: Dict[str, Any]
    base: Flags
    systems: Dict[str, Flags]
    seeds: Tuple[int, ...]
    budget: Dict[str, Any]
    title: str = ""
    about: str = ""
    measures: Tuple[str, ...] = ()
    average: Dict[str, int] = {}
    search: Dict[str, List[str]] = {}
    validate: Flags = {}
    decode: Flags = {}
    finetune: Dict[str, Any] = {}
    extrapolation: Dict[str, Any] = {}
    subset: str = ""
    gpus: int = 1
    user_dir: str = ""
    speed: Dict[str, int] = {}
    baseline: str = ""


class _Loader(yaml.SafeLoader):
    """A loader that refuses a key that is given twice."""


def _mapping(loader: _Loader, node: yaml.MappingNode) -> Dict[Any, Any]:
    loader.flatten_mapping(node)
    found: Dict[Any, Any] = {}
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        if key in found:
            line = key_node.start_mark.line + 1
            raise UsageError(f"line {line} of the plan: {key}: given twice; rename or remove one")
        found[key] = loader.construct_object(value_node, deep=True)
    return found


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def load_plan(path: FilePath, override_base: str = "") -> Plan:
    """Read a plan.

    Args:
        path: a YAML file.
        override_base: flags to add to the base, or to replace there, as on a command line.

    Raises:
        UsageError: the file cannot be read, or something in it is wrong.
    """
    try:
        found = yaml.load(Path(path).read_text(encoding="utf-8"), Loader=_Loader)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}; give the file of a plan") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: is not UTF-8; convert it, for example with iconv") from error
    except yaml.YAMLError as error:
        raise UsageError(f"{path}: is not YAML: {error}") from error
    if not isinstance(found, dict):
        raise UsageError(f"{path}: expected keys such as recipe, data, base, systems and seeds")
    found.setdefault("name", Path(path).stem)
    plan = read_plan(found, str(path))
    given = parse_flags(override_base, "--override-base")
    base = merge(plan.base, given)
    _refuse_reserved("--override-base", given)
    return plan._replace(base=base)


def read_plan(found: Mapping[str, Any], where: str) -> Plan:
    """Check the content of a plan.

    Args:
        found: the content of its file.
        where: the file, for messages.

    Raises:
        UsageError: naming the key, its value, and what would work.
    """
    refuse_unknown(where, found, Plan._fields)
    for key in ("recipe", "data", "base", "systems", "seeds", "budget"):
        if found.get(key) in (None, {}, [], ""):
            raise UsageError(f"{where}: {key}: missing; see the plans in examples/study")
    values: Dict[str, Any] = {}
    for key, value in found.items():
        if value is None:
            continue
        try:
            values[key] = _READ[key](value)
        except ValueError as error:
            raise UsageError(f"{where}: {key}: {error}") from error
    for key in ("base", "validate", "decode"):
        _refuse_reserved(f"{where}: {key}", values.get(key, {}))
    for name, flags in values["systems"].items():
        _refuse_reserved(f"{where}: systems: {name}", flags)
    plan = Plan(**values)
    if plan.baseline and plan.baseline not in plan.systems:
        advice = near(plan.baseline, list(plan.systems))
        raise UsageError(f"{where}: baseline: {plan.baseline}: no such system" + advice)
    return plan


def refuse_unknown(where: str, found: Mapping[str, Any], known: Sequence[str]) -> None:
    """Refuse keys that are not *known*.

    Raises:
        UsageError: naming the nearest known one.
    """
    for key in found:
        if key not in known:
            raise UsageError(f"{where}: {key}: unknown key" + near(str(key), known))


def _refuse_reserved(where: str, flags: Flags) -> None:
    for flag in flags:
        if flag in RESERVED:
            raise UsageError(f"{where}: {flag}: give {RESERVED[flag]} instead")


def merge(base: Flags, more: Flags) -> Flags:
    """The flags of *base*, changed by *more*, whose False drops a flag."""
    together = {**base, **more}
    return {flag: value for flag, value in together.items() if value is not False}


def plan_of(plan: Plan, system: str) -> Plan:
    """The plan as it is for one system, which may have data of its own."""
    own = plan.systems[system].get(DATA)
    return plan if own is None else plan._replace(data={**plan.data, "folder": str(own)})


def words_of(flags: Flags) -> List[str]:
    """The words of flags on a command line.

    >>> words_of({"--lr": 0.5, "--fp16": True, "--no-save": False})
    ['--lr', '0.5', '--fp16']
    """
    words: List[str] = []
    for flag, value in flags.items():
        if value is not False and flag != DATA:
            words += [flag] if value is True else [flag, str(value)]
    return words


def parse_flags(text: str, where: str) -> Flags:
    """The flags of a command line.

    >>> parse_flags("--fp16 --lr 1e-3 --update-freq=2", "base")
    {'--fp16': True, '--lr': '1e-3', '--update-freq': '2'}

    Raises:
        UsageError: a word belongs to no flag.
    """
    flags: Flags = {}
    name = ""
    for word in shlex.split(text):
        if re.match(r"--[a-z]", word):
            name, equals, value = word.partition("=")
            flags[name] = value if equals else True
        elif name and flags[name] is True:
            flags[name] = word
        else:
            raise UsageError(f"{where} {text}: {word} follows no flag; expected --flag value ...")
    return flags


# --- what the keys of a plan may hold: functions that return the value or raise ValueError


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


def _keys(**known: Callable[[Any], Any]) -> Callable[[Any], Dict[str, Any]]:
    """A mapping with some of the keys *known*, read by these functions."""

    def read(value: Any) -> Dict[str, Any]:
        if not isinstance(value, dict):
            raise ValueError(f"expected some of the keys {', '.join(known)}")
        for key in value:
            if key not in known:
                raise ValueError(f"{key}: unknown key" + near(str(key), list(known)))
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
    """The same mapping, for which a single value stands for that of *key*."""
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
    if not isinstance(value, dict) or len(value) != 1:
        raise ValueError("expected one flag with a list of values, such as {--lr: [1e-3, 3e-3]}")
    return {flag: list(_several(_text)(values)) for flag, values in value.items()}


def _tasks(value: Any) -> Dict[str, Flags]:
    names = {name: {} for name in value} if isinstance(value, list) else value
    if not isinstance(names, dict) or not names:
        raise ValueError("expected a list of tasks, or flags by task")
    return {_name(name): _flags(flags) for name, flags in names.items()}


_READ: Dict[str, Callable[[Any], Any]] = {
    "name": _name,
    "recipe": _one_of("translation", "masked_lm", "language_model"),
    "data": _or_key(
        "folder",
        _keys(
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
