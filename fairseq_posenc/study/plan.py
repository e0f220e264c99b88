"""Plans of studies, read from YAML files; imports no PyTorch, no fairseq."""

import math
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Sequence, Tuple

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.files import FilePath
from fairseq_posenc.flags.usage import near
from fairseq_posenc.flags.yaml_file import (
    count,
    keys,
    named,
    one_of,
    plain_name,
    read_keys,
    read_yaml,
    several,
    text,
)
from fairseq_posenc.generated.settings import Settings, read_settings
from fairseq_posenc.study.flags import DATA, Flags, merge, read_flags

#: The recipes, each of which is a module of ``fairseq_posenc.study.recipes``.
RECIPE_NAMES = ("translation", "masked_lm", "language_model", "generated", "documents")
_LARGEST_SEED = 2**32 - 1  # NumPy's


def _text(value: Any) -> str:
    return " ".join(text(value).split())


def _system(value: Any) -> Flags:
    if not isinstance(value, dict) or DATA not in value:
        return read_flags(value)
    own = {flag: setting for flag, setting in value.items() if flag != DATA}
    return {DATA: _text(value[DATA]), **read_flags(own)}


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
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not 0 < value < math.inf:
        raise ValueError(f"{value}: expected a number above 0")
    return float(value)


def _seed(value: Any) -> int:
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole or not 0 <= value <= _LARGEST_SEED:
        raise ValueError(f"{value}: expected a whole number from 0 to {_LARGEST_SEED:,}")
    return value


def _search(value: Any) -> Dict[str, List[str]]:
    values = next(iter(value.values())) if isinstance(value, dict) and len(value) == 1 else []
    if not values:
        raise ValueError("expected one flag with a list of values, such as {--lr: [1e-3, 3e-3]}")
    return {flag: list(several(_text)(values)) for flag in read_flags(dict.fromkeys(value, True))}


def _tasks(value: Any) -> Dict[str, Flags]:
    if not value:
        raise ValueError("expected a list of tasks, or flags by task")
    names = {name: {} for name in several(plain_name)(value)} if isinstance(value, list) else value
    return named(read_flags, "a list of tasks, or flags by task")(names)


READ: Dict[str, Callable[[Any], Any]] = {
    "name": plain_name,
    "recipe": one_of(*RECIPE_NAMES),
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
                "choices": _text,
                "documents": _text,
            },
            needed=("folder",),
        ),
    ),
    "base": read_flags,
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
    "search_seeds": count,
    "validate": read_flags,
    "decode": read_flags,
    "finetune": keys(
        {
            "data": _text,
            "tasks": _tasks,
            "flags": read_flags,
            "paper": _text,
            "epoch": one_of("best", "last"),
            "lr": several(_text),
        },
        needed=("data", "tasks"),
    ),
    "generated": read_settings,
    "extrapolation": keys({"lengths": several(count), "last": count, "tokens": count}),
    "subset": several(plain_name),
    "gpus": count,
    "user_dir": _text,
    "match": one_of("parameters"),
    "speed": _single(keys({"updates": count}), "updates"),
    "baseline": _text,
}


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

FINETUNE_BUDGET = ("--max-epoch", "--max-update")  # flags that a fine-tuning sets for itself


class Plan(NamedTuple):
    """A plan, checked for its form."""

    name: str  # names the study's folder
    recipe: str  # the name of a recipe, ``translation`` for example
    data: Dict[str, Any]  # ``folder``, the output of fairseq-preprocess, and how to read its text
    base: Flags  # flags of fairseq-train that all systems share
    # further flags by name of the system; False drops a flag of the base, and ``data`` is another
    # data folder than that of the others
    systems: Dict[str, Flags]
    seeds: Tuple[int, ...]  # seeds of the training
    budget: Dict[str, Any]  # one of ``epochs``, ``updates``, ``tokens`` and ``hours``
    title: str = ""  # one line for readers
    about: str = ""  # what is compared and why
    measures: Tuple[str, ...] = ()  # names of the scores to compare; all, if empty
    average: Dict[str, int] = {}  # number of last ``epochs`` or ``updates`` checkpoints to average
    # values to try by flag; each system gets the best on the validation set
    search: Dict[str, List[str]] = {}
    search_seeds: int = 1  # how many of the seeds, from the first on, try each of these values
    validate: Flags = {}  # flags of the validation
    decode: Flags = {}  # flags of fairseq-generate
    # ``data``, the folder of the tasks, ``tasks``, ``flags``, ``epoch``, and ``paper``, whose
    # settings of the tasks are taken
    finetune: Dict[str, Any] = {}
    generated: Tuple[Settings, ...] = ()  # the tasks whose data are generated
    # ``lengths``, ``last`` and ``tokens`` of the contexts to read
    extrapolation: Dict[str, Any] = {}
    subset: Tuple[str, ...] = ()  # the parts of the data that are scored
    gpus: int = 1  # GPUs of a run; with fewer, batches are gathered in several passes
    user_dir: str = ""  # a folder of the user's with own encodings
    # ``updates`` of each system to measure its speed by, when nothing else is running
    speed: Dict[str, int] = {}
    # ``parameters`` to give all systems the size of the baseline, by the feed-forward layers
    match: str = ""
    baseline: str = ""  # the system that the others are compared with; the first, if empty


def load_plan(path: FilePath, override_base: str = "") -> Plan:
    """Read a plan.

    Args:
        override_base: flags to add to the base, or to replace there, as on a command line.

    Raises:
        UsageError: the file cannot be read, or something in it is wrong.
    """
    found = read_yaml(path, "the file of a plan")
    if not isinstance(found, dict):
        raise UsageError(f"{path}: expected keys such as recipe, data, base, systems and seeds")
    plan = read_plan({**found, "name": found.get("name") or Path(path).stem}, str(path))
    try:
        given = read_flags(override_base)
    except ValueError as error:
        raise UsageError(f"--override-base {override_base}: {error}") from error
    base = merge(plan.base, given)
    _refuse_reserved("--override-base", given)
    return plan._replace(base=base)


def read_plan(found: Mapping[str, Any], where: str) -> Plan:
    """Check the content of a plan.

    Raises:
        UsageError: naming the key, its value, and what would work.
    """
    values = read_keys({k: v for k, v in found.items() if v is not None}, READ, where)
    for key in ("recipe", "data", "base", "systems", "seeds", "budget"):
        if not values.get(key):
            raise UsageError(f"{where}: {key}: missing; see the plans in examples/study")
    for key in ("base", "validate", "decode", "search"):
        _refuse_reserved(f"{where}: {key}", values.get(key, {}))
    for name, flags in values["systems"].items():
        _refuse_reserved(f"{where}: systems: {name}", flags)
    finetune = values.get("finetune", {})
    for name, flags in {"flags": finetune.get("flags", {}), **finetune.get("tasks", {})}.items():
        _refuse_reserved(f"{where}: finetune: {name}", flags, FINETUNE_BUDGET)
    plan = Plan(**values)
    if plan.search_seeds > len(plan.seeds):
        raise UsageError(
            f"{where}: search_seeds: {plan.search_seeds}: there are {len(plan.seeds)} seeds"
        )
    if plan.baseline and plan.baseline not in plan.systems:
        advice = near(plan.baseline, list(plan.systems))
        raise UsageError(f"{where}: baseline: {plan.baseline}: no such system" + advice)
    return plan


def _refuse_reserved(where: str, flags: Flags, allowed: Sequence[str] = ()) -> None:
    for flag in flags:
        if flag in RESERVED and flag not in allowed:
            raise UsageError(f"{where}: {flag}: give {RESERVED[flag]} instead")


def plan_of(plan: Plan, system: str) -> Plan:
    """The plan of one system, which may have its own data."""
    own = plan.systems[system].get(DATA)
    return plan if own is None else plan._replace(data={**plan.data, "folder": str(own)})
