"""Read a study: its ``plan.yaml``, and the ``result.json`` of each finished run."""

import json
import math
import shlex
import sys
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Set, Tuple

import pandas as pd
import yaml

Run = Dict[str, Any]  # result.json, and the "folder" to which its paths are relative
#: Values of entries that are missing in results of failed runs and of earlier versions.
ABSENT: Run = {
    **dict.fromkeys(("flags", "seconds", "scores", "signatures", "extrapolation"), {}),
    **dict.fromkeys(("lengths", "files", "environment"), {}),
    **dict.fromkeys(("base", "commands", "curve"), ()),
    **dict.fromkeys(("parameters", "trained", "updates", "tokens", "peak_memory_mb"), 0),
    "error": "",
}
_PLAIN = ("system", "seed", "status", "parameters", "updates", "tokens", "peak_memory_mb")


class Measure(NamedTuple):
    """A score that a study compares."""

    name: str  # its key in the results
    better: str  # ``higher`` or ``lower``
    label: str  # the name for readers
    unit: str = ""


class Study(NamedTuple):
    """The plan of a study, and its runs."""

    folder: Path
    plan: Dict[str, Any]
    runs: List[Run]  # in the order of the plan, without runs of earlier plans
    measures: List[Measure]  # the measures that have scores, in the order of the plan

    @property
    def systems(self) -> List[str]:
        """The systems with a finished run, in the order of the plan."""
        return list(dict.fromkeys(run["system"] for run in self.done))

    @property
    def baseline(self) -> str:
        """The system with which others are compared: the plan's baseline, or its first system."""
        return str(self.plan.get("baseline") or next(iter(self.plan["systems"])))

    @property
    def done(self) -> List[Run]:
        """The runs that succeeded."""
        return [run for run in self.runs if run["status"] == "done"]

    def of(self, system: str) -> List[Run]:
        """The runs of a system that succeeded, in the order of the seeds."""
        return [run for run in self.done if run["system"] == system]

    def missing(self) -> List[Tuple[str, int]]:
        """Systems and seeds without a result."""
        known = {(run["system"], run["seed"]) for run in self.runs}
        wanted = [(name, seed) for name in self.plan["systems"] for seed in self.plan["seeds"]]
        return [key for key in wanted if key not in known]

    def scores(self, measure: str) -> pd.DataFrame:
        """The finite scores of a measure: columns ``system``, ``seed`` and ``score``."""
        rows = [(run["system"], run["seed"], run["scores"].get(measure)) for run in self.done]
        kept = [(*key, float(one)) for *key, one in rows if one is not None and math.isfinite(one)]
        return pd.DataFrame(kept, columns=["system", "seed", "score"])

    def diverged(self, measure: str) -> List[Run]:
        """The finished runs whose score is infinite or NaN."""
        return [run for run in self.done if not math.isfinite(run["scores"].get(measure, 0.0))]


def read_study(folder: str) -> Study:
    """Read a study and its results so far; exit with a message if a file cannot be read."""
    root = Path(folder)
    try:
        plan = yaml.safe_load((root / "plan.yaml").read_text(encoding="utf-8"))
        about = [Measure(name, **one) for name, one in plan["measures"].items()]
        systems, seeds = list(plan["systems"]), list(plan["seeds"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError) as error:
        sys.exit(f"{root / 'plan.yaml'}: is not the plan of a study ({error!r})")
    names = plan.get("runs")
    paths = sorted(root.glob("runs/*/result.json"))
    chosen = [path for path in paths if names is None or path.parent.name in names]
    runs = [run for run in map(_read, chosen) if run["system"] in systems and run["seed"] in seeds]
    runs.sort(key=lambda run: (systems.index(run["system"]), seeds.index(run["seed"])))
    study = Study(root, plan, runs, about)
    return study._replace(measures=[one for one in about if len(study.scores(one.name))])


def _read(path: Path) -> Run:
    try:
        found = {**ABSENT, **json.loads(path.read_text(encoding="utf-8")), "folder": path.parent}
        found["extrapolation"] = _by_number(found["extrapolation"])
        found["lengths"] = {task: _by_number(one) for task, one in found["lengths"].items()}
        _ = found["system"], found["seed"], found["status"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        sys.exit(f"{path}: is not the result of a run ({error!r}); remove its folder to repeat it")
    return found


def _by_number(values: Dict[str, float]) -> Dict[int, float]:
    return {int(length): float(value) for length, value in values.items()}


def losses(run: Run) -> Dict[int, float]:
    """Validation losses keyed by update, for runs validated before training (update 0); else {}."""
    points = [point for point in run["curve"] if "valid_loss" in point]
    found = {int(point["update"]): point["valid_loss"] for point in points}
    return found if 0 in found else {}


def lines(run: Run, *keys: str) -> List[str]:
    """The lines of one of a run's files, split at line feeds only; [] if there is no such file.

    Args:
        keys: keys of the file in ``files``, such as ``hypotheses``, or ``answers`` and a task.
    """
    found: Any = run["files"]
    for key in keys:
        found = found.get(key, {})
    if not found:
        return []
    path = run["folder"] / str(found)
    try:
        text = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        sys.exit(f"{path}: cannot be read ({error}); remove its folder to repeat the run")
    return text if text[-1] else text[:-1]


def flag_texts(flags: Dict[str, Any]) -> List[str]:
    """Each flag with its value, as on a command line; *False* means without a flag of the base."""
    found = []
    for flag, value in flags.items():
        words = [flag] if value is True else [flag, str(value)]
        found.append(f"without {flag}" if value is False else " ".join(map(shlex.quote, words)))
    return found


def csv_table(study: Study) -> pd.DataFrame:
    """A table with a row for each run, enough to recompute every statistic over seeds.

    Columns are system, seed, status, size, updates, tokens, memory in MB, flags, seconds per stage,
    the plan's measures, perplexity per context length, and the percentage of correct outputs per
    generated task and length. Runs that start from a trained model also have the number of trained
    parameters and the validation loss per update.
    """
    stages = _sorted(set(run["seconds"]) for run in study.runs)
    contexts = _sorted(set(run["extrapolation"]) for run in study.runs)
    tested = _sorted(
        {(t, n) for t in run["lengths"] for n in run["lengths"][t]} for run in study.runs
    )
    updates = _sorted(set(losses(run)) for run in study.runs)
    rows = []
    for run in study.runs:
        row = {name: run[name] for name in _PLAIN}
        row["flags"] = " ".join(flag_texts(run["flags"]))
        row.update({f"seconds_{name}": run["seconds"].get(name, "") for name in stages})
        row.update({name: run["scores"].get(name, "") for name in study.plan["measures"]})
        row.update({f"perplexity_{n}": run["extrapolation"].get(n, "") for n in contexts})
        row.update({f"{t}_length{n}": run["lengths"].get(t, {}).get(n, "") for t, n in tested})
        if updates:
            row["trained"] = run["trained"]
            row.update({f"loss_at_{n}": losses(run).get(n, "") for n in updates})
        rows.append(row)
    return pd.DataFrame(rows, dtype=object)


def _sorted(found: Any) -> List[Any]:
    every: Set[Any] = set().union(*found)
    return sorted(every)
