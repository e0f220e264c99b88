"""The runs of a study, and the file ``plan.yaml`` that describes them to the report.

The Snakefile imports this; neither PyTorch nor fairseq is imported.
"""

import json
import os
import re
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Tuple

import yaml
from plan import generated
from trainings import Training, finetuned, flags_of, tasks_of, values_of, words

_LABELS = {
    "f1": "F1",
    "mcc": "Matthews correlation",
    "pearson": "Pearson correlation",
    "spearman": "Spearman correlation",
}
_TEXT = {
    "bleu": ("higher", "BLEU", ""),
    "chrf": ("higher", "chrF2", ""),
    "ter": ("lower", "TER", ""),
}
_LOSSES = {
    "loss": ("lower", "validation loss", "bits per token"),
    "perplexity": ("lower", "perplexity", ""),
}
_TOLD = {
    "breaking": ("higher", "breaking length over training length", ""),
    "beyond": ("higher", "right beyond the training lengths", "%"),
    "within": ("higher", "right within the training lengths", "%"),
}
_CHOICES = {
    "accuracy": "right choices",
    "near": "right choices, decided up to 3 sentences before",
    "far": "right choices, decided farther before",
}
#: Generated tasks that models are expected to fail; they are left out of means over tasks.
CONTROLS = ("parity", "counting")

Measures = Dict[str, Tuple[str, str, str]]  # keyed by name: the better direction; label; unit


def name_of(part: str) -> str:
    """The name of a part of the data: ``test`` for ``test@1200``."""
    return part.partition("@")[0]


def parts(plan: Dict[str, Any]) -> Dict[str, str]:
    """The scored parts of the data, with the suffixes that they add to the names of scores.

    ``test@1200`` is ``test``, scored with the averaged checkpoint of update 1,200.
    """
    usual = "valid" if plan["recipe"] == "language_model" else "test"
    first, *more = plan["subset"] or [usual]
    ends = {name: name.replace(f"{first}@", "").replace("@", "_") for name in more}
    return {first: "", **{name: f"_{end}" for name, end in ends.items()}}


def measures(plan: Dict[str, Any]) -> Measures:
    """The scores that a plan can compare, keyed by name."""
    recipe, found = plan["recipe"], {}  # type: str, Measures
    if recipe in ("translation", "language_model"):
        losses = {
            n: (_LOSSES[n][0], n if plan["subset"] else _LOSSES[n][1], _LOSSES[n][2])
            for n in ("perplexity", "loss")
        }
        for part, suffix in parts(plan).items():
            for name, (better, label, unit) in (
                _TEXT if recipe == "translation" else losses
            ).items():
                shown = f"{label}, {part}" if plan["subset"] else label
                found[name + suffix] = (better, shown, unit)
            if name_of(part) in plan["words"]:
                found[f"word_perplexity{suffix}"] = ("lower", f"perplexity by word, {part}", "")
        return found if recipe == "language_model" else {**found, **_LOSSES}
    if recipe == "generated":
        found = {**_TOLD, "loss": _LOSSES["loss"]}
        for task in tasks_of(plan):
            for name, (better, label, unit) in {
                **_TOLD,
                "loss": ("lower", "loss", _LOSSES["loss"][2]),
            }.items():
                found[f"{task}_{name}"] = (better, f"{task}: {label}", unit)
        return found
    if recipe == "documents":
        for number in ("", *map(str, plan["extrapolation"].get("lengths", ()))):
            for name, label in _CHOICES.items():
                shown = f"{label}, {number} sentences before" if number else label
                found[f"{name}_{number}" if number else name] = ("higher", shown, "%")
        found.update(bleu=_TEXT["bleu"], d_bleu=("higher", "BLEU of documents", ""))
    for one in (finetuned(plan, name) for name in plan["finetune"].get("tasks", ())):
        for name in one.scores:
            label = f"{one.name}, {_LABELS.get(name, name)}"
            found[f"{one.key}_{name}"] = ("higher", label, "%")
    if plan["base"].get("--criterion") == "masked_lm_accuracy":
        found["accuracy"] = ("higher", "masked tokens predicted right", "%")
    return {**found, **_LOSSES}


# --- existing runs of version 0.2


class Archived(NamedTuple):
    """A finished run of version 0.2 in the study's folder."""

    name: str  # the name of the run's folder
    value: str  # what the search had chosen


def archived(plan: Dict[str, Any], study: str) -> Dict[Tuple[str, int], Archived]:
    """The runs of version 0.2 with the flags of the plan, keyed by system and seed."""
    found: Dict[Tuple[str, int], Archived] = {}
    searched = next(iter(plan["search"]), "")
    try:
        names = yaml.safe_load(Path(study, "plan.yaml").read_text(encoding="utf-8")).get("runs", [])
    except OSError:
        return found
    for name in names:
        try:
            run = json.loads(Path(study, "runs", name, "result.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        system, seed = run["system"], run["seed"]
        if run["status"] != "done" or len(run["digest"]) != 64 or system not in plan["systems"]:
            continue
        value = str(run["flags"].get(searched, ""))
        ours = flags_of(plan, Training(system, seed, value))
        if _plain(run["base"]) == _plain(words(plan["base"])) and _plain(run["flags"]) == _plain(
            ours
        ):
            values = {_plain(one): one for one in values_of(plan)}
            if _plain(value) in values:
                found[system, seed] = Archived(name, values[_plain(value)])
    return found


def _plain(value: Any) -> Any:
    """A value in a form in which 1e-3 and 0.001 are equal."""
    if isinstance(value, dict):
        return {flag: _plain(one) for flag, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return float(value) if re.fullmatch(r"[\d.]+(e-?\d+)?", str(value)) else value


def _renamed(tried: Dict[str, Any], search: Dict[str, List[str]]) -> Dict[str, Any]:
    """The losses of an earlier version's search, keyed by values as the plan writes them."""
    names = {_plain(value): f"{flag} {value}" for flag in search for value in search[flag]}
    return {names.get(_plain(name.partition(" ")[2]), name): tried[name] for name in tried}


# --- plan.yaml


def write(
    plan: Dict[str, Any], study: str, runs: List[str], chosen: Dict[str, Dict[str, Any]]
) -> None:
    """Write ``plan.yaml`` of a study: the plan, the choices of the search, and the runs' names.

    Args:
        chosen: the chosen ``value`` and the losses ``tried`` of each system whose search is over.
    """
    path = Path(study, "plan.yaml")
    before: Dict[str, Any] = {}
    if path.exists():
        before = yaml.safe_load(path.read_text(encoding="utf-8"))
    known = measures(plan)
    flag = next(iter(plan["search"]), "")
    tried = {
        name: one.get("tried", _renamed(before.get("tried", {}).get(name, {}), plan["search"]))
        for name, one in chosen.items()
    }
    content = {
        **plan,
        "generated": {
            name: {"task": name, **generated(plan, name)} for name in tasks_of(plan) if name
        },
        "measures": {
            name: dict(zip(("better", "label", "unit"), known[name]))
            for name in plan["measures"] or known
        },
        "chosen": {name: {flag: one["value"]} for name, one in chosen.items() if flag},
        "tried": tried if flag else {},
        "runs": runs,
        **{key: before[key] for key in ("speed", "speed_runs") if key in before},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=100)
    path.with_suffix(".part").write_text(text, encoding="utf-8")
    os.replace(str(path.with_suffix(".part")), str(path))


def make_words(plan: Dict[str, Any], task: str) -> List[str]:
    """The flags of make.py for the data of a generated task."""
    found = {f"--{key.replace('_', '-')}": v for key, v in generated(plan, task).items()}
    own = ["--user-dir", plan["user_dir"]] if plan["user_dir"] else []
    return own + [
        word
        for flag, value in found.items()
        for word in (flag, ",".join(map(str, value)) if isinstance(value, list) else str(value))
    ]


def contexts(plan: Dict[str, Any], folder: str) -> List[str]:
    """The context sizes at which choices are scored: the training's, then the plan's."""
    lines = Path(folder, "text.settings").read_text(encoding="utf-8").splitlines()
    (trained,) = (line.partition("=")[2] for line in lines if line.startswith("CONTEXT="))
    return [trained.split(",")[-1], *map(str, plan["extrapolation"].get("lengths", []))]


def choices(plan: Dict[str, Any], folder: str, scored: str) -> List[str]:
    """``SUFFIX=FILE`` for the scores of choices in a folder, one for each context size."""
    first, *more = contexts(plan, folder)
    return [f"={scored}/choices-{first}.json", *(f"_{n}={scored}/choices-{n}.json" for n in more)]
