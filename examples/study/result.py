"""Join the parts of a run's result, and choose the best value of a search."""

import json
import math
import shutil
from pathlib import Path
from statistics import mean
from typing import Any, Dict, List, Sequence

from logs import Part


def choose(trials: Sequence[str]) -> Part:
    """Choose the value of a search with the lowest mean validation loss.

    Args:
        trials: ``FLAG VALUE=FILE,FILE`` for each value and seed; the files' losses are averaged.

    Returns:
        the best ``value``, and in ``tried`` the losses of all seeds for each value with which no
        training diverged.
    """
    found: Dict[str, List[float]] = {}
    for trial in trials:
        name, _, files = trial.rpartition("=")
        losses = [read(path).get("scores", {}).get("loss", math.inf) for path in files.split(",")]
        found.setdefault(name, []).append(mean(losses))
    finite = {name: each for name, each in found.items() if all(map(math.isfinite, each))}
    best = min(finite or found, key=lambda name: mean(found[name]))
    return {"value": best.partition(" ")[2], "tried": finite}


def read(path: str) -> Part:
    """Read a part of a result from its file."""
    found: Part = json.loads(Path(path).read_text(encoding="utf-8"))
    return found


def together(trainings: Dict[str, Part], controls: Sequence[str]) -> Part:
    """Join the parts of a run's trainings on all generated tasks into one part."""
    chosen = [task for task in trainings if task not in controls] or list(trainings)
    points = [{one["update"]: one for one in trainings[task]["curve"]} for task in chosen]
    curve = []
    for update in sorted(set(points[0]).intersection(*points[1:])):
        of_all = [one[update] for one in points]
        names = set(of_all[0]).intersection(*of_all[1:])
        curve.append({name: mean(float(one[name]) for one in of_all) for name in sorted(names)})
    every, first = list(trainings.values()), next(iter(trainings.values()))
    losses = {
        f"{task}_loss": one["scores"].get("loss", math.nan) for task, one in trainings.items()
    }
    memory = [one["peak_memory_mb"] for one in every if "peak_memory_mb" in one]
    return {
        **first,
        "tokens": sum(one["tokens"] for one in every),
        "seconds": {"train": sum(one["seconds"]["train"] for one in every)},
        "commands": [command for one in every for command in one["commands"]],
        "curve": curve,
        **({"peak_memory_mb": max(memory)} if memory else {}),
        "scores": {"loss": round(mean(losses[f"{task}_loss"] for task in chosen), 4), **losses},
    }


def result(
    folder: str,
    about: Part,
    trainings: Dict[str, Part],
    rest: Sequence[Part],
    controls: Sequence[str],
) -> Part:
    """Join the parts of a run's result, and copy to *folder* the text files that they name.

    Args:
        about: entries from the plan, such as system, seed and flags.
        trainings: the part of each training, keyed by generated task; by "" for other recipes.
        rest: all other parts.
        controls: generated tasks that are left out of means.
    """
    found: Part = {"status": "done", "error": "", "commands": [], **about}
    whole = next(iter(trainings.values())) if "" in trainings else together(trainings, controls)
    failed = [one["error"] for one in trainings.values() if "error" in one]
    if "" in trainings:  # the loss comes from the validation of the scored checkpoint
        whole = {**whole, "scores": {}}
    for part in (whole, *rest):
        _add(found, part)
    if failed:
        return {**found, "status": "failed", "error": failed[0]}
    if "" not in trainings:
        tasks = [task for task in trainings if task not in controls] or list(trainings)
        for name in ("breaking", "beyond", "within"):
            found["scores"][name] = mean(found["scores"][f"{task}_{name}"] for task in tasks)
        found["scores"] = {name: round(value, 4) for name, value in found["scores"].items()}
    found["files"] = {name: _copied(one, folder) for name, one in found.get("files", {}).items()}
    return found


def _copied(place: Any, folder: str) -> Any:
    if isinstance(place, dict):
        copied = {}
        for key, one in place.items():
            copied[key] = f"{key}.answers.tsv"
            shutil.copyfile(one, str(Path(folder, copied[key])))
        return copied
    shutil.copyfile(place, str(Path(folder, Path(place).name)))
    return Path(place).name


def _add(found: Part, more: Part) -> None:
    """Add entries to a nested dictionary; lists of commands are joined, integers are summed."""
    for key, value in more.items():
        if isinstance(value, dict):
            _add(found.setdefault(key, {}), value)
        elif key == "commands":
            found[key] = [*found.get(key, []), *value]
        elif isinstance(value, int) and key in found:
            found[key] += value
        else:
            found[key] = value
