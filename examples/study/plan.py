"""The plan of a study: what its keys may hold, and the flags of the trainings that it asks for.

The Snakefile and the scripts beside it read this; neither PyTorch nor fairseq is imported.
"""

import difflib
import functools
import hashlib
import json
import math
import re
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

import yaml

Flags = Dict[str, Any]  # a value by flag; True for a flag without one, False drops one of the base


class Wrong(Exception):
    """Something in a plan is wrong; the text is one line."""


# --- the file


class _Loader(yaml.SafeLoader):
    """Keeps numbers as they are written (1e-3), and refuses a key that is given twice."""

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
    """Raise ``Wrong(text)`` unless something is true."""
    if not true:
        raise Wrong(text)


def _text(value: Any) -> str:
    need(isinstance(value, (str, bool)) and value != "", f"{value}: expected a text")
    return " ".join(str(value).split())


def _name(value: Any) -> str:
    fits = isinstance(value, str) and re.fullmatch(r"\w[\w.+-]{0,99}", value)
    need(fits, f"{value}: expected letters, digits and - . _ +")
    return str(value)


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
        need(re.fullmatch(r"--[a-z][\w-]*", str(flag)), f"{flag}: is no flag, such as --lr")
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


def _named(read: Callable[[Any], Any]) -> Callable[[Any], Dict[str, Any]]:
    def named(value: Any) -> Dict[str, Any]:
        need(value and isinstance(value, dict), "expected names, with settings indented below")
        names = [_name(name).lower() for name in value]
        need(len(set(names)) == len(names), "two names differ only in upper and lower case")
        return {name: _in(name, read, one) for name, one in value.items()}

    return named


def _keys(**known: Callable[[Any], Any]) -> Callable[[Any], Dict[str, Any]]:
    def keys(value: Any) -> Dict[str, Any]:
        need(isinstance(value, dict), f"expected some of {', '.join(known)}")
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


def _tasks(read: Callable[[Any], Any]) -> Callable[[Any], Dict[str, Any]]:
    """Reads a list of names, or settings by name."""
    named = _named(lambda one: read(one or {}))
    return lambda value: named(dict.fromkeys(value) if isinstance(value, list) else value)


def lengths(value: Any) -> List[int]:
    """The lengths in a text or list such as ``1-8`` or ``[1-19:2, 30]``, in increasing order."""
    found = set()
    for part in ",".join(value if isinstance(value, list) else [_text(value)]).split(","):
        match = re.fullmatch(r"\s*(\d+)(?:-(\d+)(?::(\d+))?)?\s*", part)
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
    paper=_text,
    epoch=_choice("best", "last"),
    lr=_several(_text),
)

#: The keys that each recipe has besides those of all recipes.
RECIPES: Dict[str, Dict[str, Callable[[Any], Any]]] = {
    "translation": {"decode": _flags, "subset": _several(_name)},
    "masked_lm": {"finetune": _FINETUNE},
    "language_model": {"extrapolation": _EXTRAPOLATION, "subset": _several(_name)},
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
    "search_seeds": _whole,
    "validate": _flags,
    "baseline": _name,
    "gpus": _whole,
    "user_dir": _text,
}
USUAL: Dict[str, Any] = {"title": "", "about": "", "measures": [], "average": {}, "search": {}}
USUAL.update(search_seeds=1, validate={}, decode={}, finetune={}, generated={}, extrapolation={})
USUAL.update(subset=[], gpus=1, user_dir="", baseline="")

#: Flags that the study sets, and what to write instead.
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
        base: flags to change in the base of the plan.

    Raises:
        Wrong: naming the file, the key, its value, and what would work.
    """
    try:
        return _checked(
            yaml.load(Path(path).read_text(encoding="utf-8"), Loader=_Loader), base or {}
        )
    except Wrong as error:
        raise Wrong(f"{path}: {error}") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise Wrong(f"{path}: {' '.join(str(error).split())}") from None


def _checked(found: Any, base: Flags) -> Dict[str, Any]:
    recipe = found.get("recipe") if isinstance(found, dict) else None
    plan = _keys(**{**KEYS, **RECIPES.get(str(recipe), {})})(found)
    for key in ("recipe", "data", "base", "systems", "seeds", "budget"):
        need(plan.get(key), f"{key}: missing; see the plans in examples/study")
    plan = {**USUAL, **plan}
    plan["base"].update({flag: v if isinstance(v, bool) else str(v) for flag, v in base.items()})
    given = {key: plan[key] for key in ("base", "validate", "decode", "search")}
    given.update({f"systems: {name}": flags for name, flags in plan["systems"].items()})
    for where, flags in given.items():
        for flag in flags:
            need(flag not in RESERVED, f"{where}: {flag}: give {RESERVED.get(flag)} instead")
    number = len(plan["seeds"])
    need(plan["search_seeds"] <= number, f"search_seeds: {plan['search_seeds']}: of {number} seeds")
    known = ", ".join(plan["systems"])
    fits = not plan["baseline"] or plan["baseline"] in plan["systems"]
    need(fits, f"baseline: {plan['baseline']}: no such system; there are {known}")
    for key in {"documents": ("choices", "documents")}.get(plan["recipe"], ()):
        need(key in plan["data"], f"data: {key}: missing; see documents.yaml")
    if plan["recipe"] == "generated":
        need(plan["generated"].get("tasks"), "generated: tasks: missing; give [copy, reverse]")
        need(not plan["average"], "average: has no meaning for the recipe generated")
        for name in plan["generated"]["tasks"]:
            one = generated(plan, name)
            for key in ("lengths", "test_lengths"):
                need(key in one, f"generated: {name}: {key}: missing; give for example 1-8")
            longest = max(one["lengths"])
            fits = {length > longest for length in one["test_lengths"]} == {True, False}
            need(fits, f"generated: {name}: test_lengths: need some up to {longest}, some beyond")
    return plan


# --- flags


def merge(*parts: Flags) -> Flags:
    """Flags, changed by later ones, whose False drops a flag."""
    together = {flag: value for part in parts for flag, value in part.items() if flag != "data"}
    return {flag: value for flag, value in together.items() if value is not False}


def words(flags: Flags) -> List[str]:
    """The words of flags on a command line."""
    return [w for f, v in flags.items() for w in ([f] if v is True else [f, str(v)])]


def whole(flags: Flags, flag: str, where: str, usual: int = 0) -> int:
    """The value of a flag that has to be a whole number above 0; the first one of ``[4]``."""
    first = str(flags.get(flag, usual or "nothing")).strip("[]() ").split(",")[0].strip()
    fits = first.isdecimal() and int(first)
    need(fits, f"{where}: {flag} {first}: expected a whole number above 0")
    return int(first)


# --- the trainings


class Training(NamedTuple):
    """A training: a system with a seed, a value of the search, and a generated task if any."""

    system: str
    seed: int
    value: str = ""
    task: str = ""


def flags_of(plan: Dict[str, Any], one: Training) -> Flags:
    """The flags of a system beyond the base, with what the search tries or has chosen."""
    own = plan["systems"][one.system]
    return {**own, **{flag: one.value for flag in plan["search"] if one.value}}


def folder_of(plan: Dict[str, Any], system: str, task: str = "") -> str:
    """The data folder of a system; of a generated task, the folder that the study makes."""
    folder = str(plan["systems"][system].get("data", plan["data"]["folder"]))
    made = [generated(plan, task), digest(plan["user_dir"], "*.py")] if task else []
    return f"{folder}/{task}-{key_of(*made)}" if task else folder


def generated(plan: Dict[str, Any], task: str) -> Dict[str, Any]:
    """The settings of a generated task: its own, and those that all tasks share."""
    shared = {key: value for key, value in plan["generated"].items() if key != "tasks"}
    return {"family": "language_modeling", **shared, **plan["generated"]["tasks"][task]}


def pair(plan: Dict[str, Any], folder: str) -> Tuple[str, str]:
    """The source and the target language: the plan's, or those in the names of the data's files."""
    named = (re.match(r"train\.(\w+)-(\w+)\.\w+\.idx", p.name) for p in _files(folder, "train.*"))
    source, target = next((m.groups() for m in named if m), ("SOURCE", "TARGET"))
    return plan["data"].get("source_lang", source), plan["data"].get("target_lang", target)


def task_words(plan: Dict[str, Any], one: Training) -> List[str]:
    """The words that select fairseq's task, and set it up."""
    recipe = plan["recipe"]
    if recipe == "generated":
        family = generated(plan, one.task)["family"]
        sides = ["--source-lang", "input", "--target-lang", "output"]
        eos = ["--sample-break-mode", "eos"]
        return ["--task", family, *(sides if family == "translation" else eos)]
    if recipe in ("translation", "documents"):
        source, target = pair(plan, folder_of(plan, one.system))
        return ["--task", "translation", "--source-lang", source, "--target-lang", target]
    usual = {"masked_lm": "masked_lm", "language_model": "language_modeling"}[recipe]
    return ["--task", str(merge(plan["base"], flags_of(plan, one)).get("--task", usual))]


def training_words(plan: Dict[str, Any], one: Training) -> List[str]:
    """The words of a training between its ``--save-dir`` and the format of its log."""
    usual = {"--log-interval": "100", "--num-workers": "0", "--required-batch-size-multiple": "1"}
    if plan["recipe"] == "generated":
        usual["--criterion"] = "answer_cross_entropy"
    flags = merge(usual, plan["base"], flags_of(plan, one))
    if plan["recipe"] in ("masked_lm", "language_model"):
        flags.pop("--task", None)
    flags = {
        f: str(v).replace("{seed}", str(one.seed)) if f in STARTS else v for f, v in flags.items()
    }
    return [*words(flags), "--seed", str(one.seed), *_budget(plan, flags), *_saving(plan)]


STARTS = ("--finetune-from-model", "--lora-base")  # flags that name a checkpoint to start from


def starts(plan: Dict[str, Any], one: Training) -> List[str]:
    """The checkpoints from which a training starts."""
    given = training_words(plan, one)
    return [given[at + 1] for at, word in enumerate(given) if word in STARTS]


def passes(plan: Dict[str, Any], one: Training) -> int:
    """The passes that gather a batch on the number of GPUs that the plan is meant for."""
    return whole(merge(plan["base"], flags_of(plan, one)), "--update-freq", one.system, 1)


def _budget(plan: Dict[str, Any], flags: Flags) -> List[str]:
    ((kind, amount),) = plan["budget"].items()
    if kind == "tokens":
        needed = ("--batch-size", "--tokens-per-sample")
        sizes = [whole(flags, flag, "budget: tokens: base") for flag in needed]
        sizes += [whole(flags, "--update-freq", "base", 1), plan["gpus"]]
        kind, amount = "updates", math.ceil(amount / functools.reduce(int.__mul__, sizes))
    flag = {"updates": "--max-update", "epochs": "--max-epoch", "hours": "--stop-time-hours"}
    return [flag[kind], str(amount)]


def _saving(plan: Dict[str, Any]) -> List[str]:
    if "epochs" in plan["average"]:
        return ["--keep-last-epochs", str(plan["average"]["epochs"])]
    kept = plan["average"].get("updates", 1)
    return ["--no-epoch-checkpoints", "--keep-interval-updates", str(kept)]


def tasks_of(plan: Dict[str, Any]) -> List[str]:
    """The generated tasks of a plan; one without a name for the other recipes."""
    return list(plan["generated"].get("tasks", [""]))


def trainings(plan: Dict[str, Any]) -> List[Training]:
    """All trainings that a plan could need: every value of the search with every seed."""
    values = next(iter(plan["search"].values()), [""])
    return [
        Training(system, seed, value, task)
        for seed in plan["seeds"]
        for system in plan["systems"]
        for value in values
        for task in tasks_of(plan)
    ]


# --- digests


def key_of(*content: Any) -> str:
    """Eight hexadecimal digits that stand for what decides a result."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:8]


@functools.lru_cache(maxsize=None)
def digest(place: str, *names: str) -> str:
    """A digest of a file, or of the files in a folder whose names match; empty without any.

    The names, the sizes and 4 MiB at either end count; times and the folder's own place do not.
    """
    found = hashlib.sha256()
    files = list(_files(place, *names)) if place else []
    for file in files:
        size = file.stat().st_size
        with open(file, "rb") as stream:
            ends = stream.read(1 << 22)
            if size > 1 << 22:
                stream.seek(max(1 << 22, size - (1 << 22)))
                ends += stream.read()
        found.update(json.dumps([file.name, size, hashlib.sha256(ends).hexdigest()]).encode())
    return found.hexdigest() if files else ""


def _files(place: str, *names: str) -> List[Path]:
    path = Path(place)
    matching = {file for name in names or ("*",) for file in path.rglob(name)}
    return sorted(file for file in matching or {path} if file.is_file())


def key_of_training(plan: Dict[str, Any], one: Training) -> str:
    """What decides a training: flags, data, the checkpoint it starts from, and own code."""
    folder = folder_of(plan, one.system, one.task)
    # the data of a generated task follow from its settings, which are in the folder's name
    data = Path(folder).name if one.task else digest(folder, "dict*", "train*", "valid*")
    files = [data, digest(plan["user_dir"], "*.py"), *map(digest, starts(plan, one))]
    return key_of(task_words(plan, one), sorted(training_words(plan, one)), plan["gpus"], files)


def name_of(plan: Dict[str, Any], one: Training) -> str:
    """The name of a training's folder."""
    task = f"-{one.task}" if one.task else ""
    return f"{one.system}{task}-seed{one.seed}-{key_of_training(plan, one)}"


def device_words(plan: Dict[str, Any], one: Training, gpus: int) -> List[str]:
    """The words of a training on so many GPUs, or on the CPU, with the batch that is meant."""
    share, processes = plan["gpus"], max(1, gpus)
    more = ["--update-freq", str(passes(plan, one) * share // processes)]
    here = ["--distributed-world-size", str(processes), *([] if gpus else ["--cpu"])]
    return [*(more if share > processes else []), *here]


# --- fine-tuning

_FINETUNE: Flags = {  # as in examples/glue
    "--arch": "posenc_masked_lm",
    "--init-token": "0",
    "--separator-token": "2",
    "--shorten-method": "truncate",
    "--dropout": "0.1",
    "--attention-dropout": "0.1",
    "--optimizer": "adam",
    "--adam-betas": "(0.9, 0.999)",
    "--adam-eps": "1e-6",
    "--weight-decay": "0.01",
    "--clip-norm": "1.0",
    "--lr-scheduler": "polynomial_decay",
    "--required-batch-size-multiple": "1",
    "--num-workers": "0",
    "--log-interval": "100",
}


class Task(NamedTuple):
    """A task to fine-tune on, as its folder describes it."""

    name: str
    folder: str
    labels: Tuple[str, ...]  # the classes, or none for numbers
    scores: Tuple[str, ...]  # with the reported one first
    positive: str  # the label whose F1 counts
    flags: Flags  # epochs, batch and learning rate
    examples: int  # training examples

    @property
    def key(self) -> str:
        """Its name in results: lower case, letters and digits."""
        return re.sub(r"\W", "", self.name.lower())


def finetuned(plan: Dict[str, Any], name: str) -> Task:
    """A task of a plan.

    Raises:
        Wrong: the folder is not that of a task.
    """
    asked = plan["finetune"]
    folder = Path(asked["data"], name)
    try:
        about = yaml.safe_load((folder / "task.yaml").read_text(encoding="utf-8"))[name]
        examples = int((folder / "examples").read_text())
        about = {**about, **(about["papers"][asked["paper"]] if "paper" in asked else {})}
    except (OSError, KeyError, ValueError, TypeError) as error:
        text = f"finetune: {name}: {folder} is not the folder of a task ({error!r}); make it with"
        raise Wrong(f"{text} examples/glue/prepare.sh") from None
    numbers = bool(about.get("regression"))
    one = {key: about.get(key) for key in ("batch", "lr", "scores")}
    batch, rate = (v[0] if isinstance(v, list) else v for v in (one["batch"], one["lr"]))
    flags = {"--max-epoch": about.get("epochs", 3), "--batch-size": batch or 32}
    flags["--lr"] = rate or "2e-5"
    scores = one["scores"] or (["pearson", "spearman"] if numbers else "accuracy")
    scores = tuple(scores if isinstance(scores, list) else [scores])
    labels = () if numbers else tuple(map(str, about["labels"]))
    positive = str(about.get("positive", "1"))
    return Task(name, str(folder), labels, scores, positive, flags, examples)


def rates(plan: Dict[str, Any], task: Task) -> List[str]:
    """The learning rates of which the best is taken."""
    given = merge(
        task.flags, plan["finetune"].get("flags", {}), plan["finetune"]["tasks"][task.name]
    )
    return list(plan["finetune"].get("lr") or [str(given["--lr"])])


def finetuning_words(plan: Dict[str, Any], task: Task, rate: str, seed: int) -> List[str]:
    """The words of a fine-tuning after its ``--save-dir``."""
    given = (plan["finetune"].get("flags", {}), plan["finetune"]["tasks"][task.name])
    chosen = merge(_FINETUNE, task.flags, *given, {"--lr": rate})
    where = f"finetune: {task.name}"
    batch = whole(chosen, "--batch-size", where) * whole(chosen, "--update-freq", where, 1)
    epochs = whole(chosen, "--max-epoch", where)
    updates = whole(chosen, "--max-update", where, -(-task.examples // batch) * epochs)
    usual = {"--total-num-update": updates, "--warmup-updates": int(updates * 0.06)}
    last = plan["finetune"].get("epoch", "best") == "last"
    return [
        *("--reset-optimizer", "--reset-dataloader", "--reset-meters", "--reset-lr-scheduler"),
        *("--num-classes", str(len(task.labels) or 1)),
        *([] if task.labels else ["--regression-target"]),
        *("--criterion", "sentence_prediction_metrics", "--metrics", ",".join(task.scores)),
        *("--positive-label", task.positive, "--best-checkpoint-metric", task.scores[0]),
        *("--maximize-best-checkpoint-metric", *words(merge(usual, chosen)), "--seed", str(seed)),
        *(
            "--no-epoch-checkpoints",
            "--no-save-optimizer-state" if last else "--no-last-checkpoints",
        ),
    ]
