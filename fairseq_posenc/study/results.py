"""The plan of a study, and the results of its finished runs.

A study is a folder with ``plan.yaml``, the plan as resolved, and a folder
``runs/SYSTEM-seedSEED-DIGEST`` for each run, which has a ``result.json`` once it is finished.
"""

import csv
import io
import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.files import FilePath
from fairseq_posenc.basics.lines import read_json_object
from fairseq_posenc.flags.yaml_file import read_yaml
from fairseq_posenc.study.flags import flag_texts
from fairseq_posenc.study.logs import split_lines, validated
from fairseq_posenc.study.statistics import Comparison, compare

PLAN = "plan.yaml"
RUNS = "runs"
RESULT = "result.json"
DONE, FAILED = "done", "failed"


class Measure(NamedTuple):
    """A score that a study compares."""

    name: str  # the key in the results
    better: str  # ``higher`` or ``lower``
    label: str  # the name for readers
    unit: str = ""  # the unit, or nothing


class Run(NamedTuple):
    """A run that has ended."""

    folder: Path  # the folder, to which the paths in ``files`` and ``checkpoint`` are relative
    system: str  # name of the system
    seed: int  # seed of the training
    digest: str  # hexadecimal digest of all that decides the result
    status: str  # ``done`` or ``failed``
    flags: Dict[str, Any] = {}  # flags of the system beyond the base
    base: Sequence[str] = ()  # flags that all systems share
    commands: Sequence[str] = ()  # the exact command lines
    parameters: int = 0  # number of parameters
    trained: int = 0  # number of parameters that were trained; 0 in results of earlier versions
    updates: int = 0  # number of updates
    tokens: int = 0  # target tokens read in training
    seconds: Dict[str, float] = {}  # time of each stage: ``train``, ``decode`` and others
    peak_memory_mb: float = 0  # largest memory of the training, on the GPU if it had one
    scores: Dict[str, float] = {}  # values of the measures
    signatures: Dict[str, str] = {}  # sacreBLEU's signature of the scores that have one
    # points of the learning curve by increasing ``update``, with ``train_loss`` or ``valid_loss``
    # in bits per token
    curve: Sequence[Mapping[str, float]] = ()
    extrapolation: Dict[int, float] = {}  # perplexity by length of the context
    # percentage of right outputs of a generated task, by the name of the task and by length
    lengths: Dict[str, Dict[int, float]] = {}
    files: Dict[str, Any] = {}  # hypotheses, references, sources and answers
    checkpoint: str = ""  # the checkpoint that was scored
    error: str = ""  # last lines of the log of a failed run
    environment: Dict[str, Any] = {}  # versions and device

    @property
    def done(self) -> bool:
        """Whether the run succeeded."""
        return self.status == DONE

    @property
    def losses(self) -> Dict[int, float]:
        """The validation losses by update, in order, if the first is before any training."""
        found = validated(self.curve)
        return found if 0 in found else {}

    def lines(self, *keys: str) -> List[str]:
        """The lines of one of its files; none if the run has no such file.

        Args:
            keys: the way to the file's name in ``files``, such as ``hypotheses``, or ``answers``
                and a task.

        Raises:
            UsageError: the file cannot be read.
        """
        found: Any = self.files
        for key in keys:
            found = found.get(key) if isinstance(found, dict) else None
        if not found:
            return []
        path = self.folder / str(found)
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(
                f"{path}: cannot be read ({error}); remove its run to repeat it"
            ) from None
        return split_lines(text)


@dataclass(frozen=True)
class Study:
    """A study: its plan, the runs that have ended, and the comparison of their scores."""

    folder: Path
    plan: Dict[str, Any]  # the resolved plan
    systems: Tuple[str, ...]  # names, in the order of the plan
    seeds: Tuple[int, ...]  # in the order of the plan
    # in the order of systems, then of seeds; those of earlier plans are left out
    runs: Tuple[Run, ...]
    measures: Dict[str, Measure]  # by name, in the order of the plan
    # rounds of short trainings by system, made while nothing else was running; their score is
    # ``tokens_per_second``
    speed: Sequence[Dict[str, Run]] = ()

    def of(self, system: str) -> List[Run]:
        """The runs of *system* that succeeded, by seed."""
        return [run for run in self.runs if run.system == system and run.done]

    def run(self, system: str, seed: int) -> Optional[Run]:
        """The run of *system* with *seed* that succeeded, if there is one."""
        return next((run for run in self.of(system) if run.seed == seed), None)

    @property
    def baseline(self) -> str:
        """The system that the others are compared with: the plan's, or else the first."""
        return self.plan.get("baseline") or self.systems[0]

    @cached_property
    def finished(self) -> List[str]:
        """The systems with a run that succeeded, in the order of the plan."""
        return [name for name in self.systems if self.of(name)]

    @property
    def failed(self) -> List[Run]:
        """The runs that failed."""
        return [run for run in self.runs if not run.done]

    @property
    def missing(self) -> List[Tuple[str, int]]:
        """Systems and seeds without a result."""
        present = {(run.system, run.seed) for run in self.runs}
        wanted = [(name, seed) for name in self.systems for seed in self.seeds]
        return [key for key in wanted if key not in present]

    @property
    def diverged(self) -> Dict[str, List[Tuple[str, int]]]:
        """Systems and seeds of finished runs with an infinite score or none (NaN), by measure."""
        found = {
            name: [
                (run.system, run.seed)
                for run in self.runs
                if run.done and not math.isfinite(run.scores.get(name) or 0.0)
            ]
            for name in self.measures
        }
        return {name: keys for name, keys in found.items() if keys}

    @cached_property
    def scores(self) -> Dict[str, Dict[str, Dict[int, float]]]:
        """The finite scores by measure, system and seed."""
        return {
            measure: {
                name: {
                    run.seed: float(run.scores[measure])
                    for run in self.of(name)
                    if math.isfinite(run.scores.get(measure, math.nan))
                }
                for name in self.systems
            }
            for measure in self.measures
        }

    @cached_property
    def comparisons(self) -> Dict[str, Comparison]:
        """The comparison of all systems, by measure that has a score."""
        return {
            name: compare(found, self.measures[name].better)
            for name, found in self.scores.items()
            if any(found.values())
        }

    @property
    def scored(self) -> List[Measure]:
        """The measures that have a score, in the order of the plan."""
        return [self.measures[name] for name in self.comparisons]


def to_csv(study: Study) -> str:
    """A table with a row for each run, from which every statistic over seeds can be recomputed.

    Columns are system, seed, status, the flags of the system, parameters, updates, tokens, memory
    in MB, seconds by stage, the measures of the plan, perplexity by length of the context, the
    percentage of right outputs of generated tasks by length, and of runs that start from a trained
    model the number of trained parameters and the validation loss by update.

    Args:
        study: the study; values that a run lacks stay empty.
    """
    stages = sorted({stage for run in study.runs for stage in run.seconds})
    lengths = sorted({length for run in study.runs for length in run.extrapolation})
    tested = sorted({(t, n) for run in study.runs for t, by in run.lengths.items() for n in by})
    validated = sorted({update for run in study.runs for update in run.losses})
    of_start = ["trained", *(f"loss_at_{update}" for update in validated)] if validated else []
    plain = ("system", "seed", "status", "parameters", "updates", "tokens", "peak_memory_mb")
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(
        [*plain, "flags", *(f"seconds_{stage}" for stage in stages), *study.measures]
        + [f"perplexity_{length}" for length in lengths]
        + [f"{task}_length{length}" for task, length in tested]
        + of_start
    )
    for run in study.runs:
        flags = " ".join(flag_texts(run.flags))
        table.writerow(
            [*(getattr(run, name) for name in plain), flags]
            + [run.seconds.get(stage, "") for stage in stages]
            + [run.scores.get(name, "") for name in study.measures]
            + [run.extrapolation.get(length, "") for length in lengths]
            + [run.lengths.get(task, {}).get(length, "") for task, length in tested]
            + [run.trained, *(run.losses.get(update, "") for update in validated)][: len(of_start)]
        )
    return text.getvalue()


def read_run(folder: Path) -> Run:
    """The result of a finished run.

    Raises:
        UsageError: its ``result.json`` cannot be read.
    """
    path = folder / RESULT
    found = read_json_object(str(path), str(path), "remove the folder to repeat the run")
    try:
        known = {name: found[name] for name in Run._fields if name in found}
        lengths = known.get("extrapolation", {}).items()
        known["extrapolation"] = {int(length): float(value) for length, value in lengths}
        by_task = known.get("lengths", {}).items()
        known["lengths"] = {
            task: {int(length): float(value) for length, value in found.items()}
            for task, found in by_task
        }
        return Run(folder=folder, **known)
    except (AttributeError, TypeError, ValueError) as error:
        raise UsageError(
            f"{path}: is not the result of a run ({error}); remove the folder to repeat it"
        ) from error


def load_results(folder: FilePath) -> Study:
    """Read a study and its results so far.

    Raises:
        UsageError: there is no study, or one of its files cannot be read.
    """
    root = Path(folder)
    plan = read_plan(root)
    systems, seeds = tuple(plan["systems"]), tuple(plan["seeds"])
    folders = sorted(path.parent for path in root.glob(f"{RUNS}/*/{RESULT}"))
    wanted = plan.get("runs")  # names; runs of earlier plans stay in the folder
    runs = [read_run(path) for path in folders if wanted is None or path.name in wanted]
    known = [run for run in runs if run.system in systems and run.seed in seeds]
    known.sort(key=lambda run: (systems.index(run.system), seeds.index(run.seed)))
    measures = {name: Measure(name, **about) for name, about in plan["measures"].items()}
    timed = [root / RUNS / name for name in plan.get("speed_runs", ())]
    rounds = [timed[start : start + len(systems)] for start in range(0, len(timed), len(systems))]
    ended = set(folders)
    speed = [_speeds(ended.intersection(made)) for made in rounds]
    return Study(root, plan, systems, seeds, tuple(known), measures, speed)


def _speeds(folders: Iterable[Path]) -> Dict[str, Run]:
    runs = map(read_run, folders)
    return {run.system: run for run in runs if run.done}


def read_plan(folder: Path) -> Dict[str, Any]:
    """The resolved plan of a study.

    Raises:
        UsageError: it cannot be read.
    """
    path = folder / PLAN
    plan = read_yaml(path, "the folder of a study")
    missing = {"systems", "seeds", "measures"} - set(plan if isinstance(plan, dict) else ())
    if missing:
        raise UsageError(f"{path}: has no {', '.join(sorted(missing))}; run the study again")
    return dict(plan)
