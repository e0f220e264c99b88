"""What all sections of a report are made from: a study, and the comparison on each measure."""

import math
import shlex
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.study.logs import split_lines
from fairseq_posenc.study.results import Measure, Run, Study
from fairseq_posenc.study.statistics import Comparison, compare


class Evidence(NamedTuple):
    """A study with its statistics.

    Args:
        study: the results.
        baseline: the system that all others are compared with.
        scores: the finite ones by measure, system and seed.
        comparisons: by measure that has a score.
    """

    study: Study
    baseline: str
    scores: Dict[str, Dict[str, Dict[int, float]]]
    comparisons: Dict[str, Comparison]

    @property
    def measures(self) -> List[Measure]:
        """The measures that have a score, in the order of the plan."""
        return [self.study.measures[name] for name in self.comparisons]

    @property
    def systems(self) -> List[str]:
        """The systems with a finished run, in the order of the plan."""
        return [name for name in self.study.systems if self.study.of(name)]

    @property
    def missing(self) -> List[Tuple[str, int]]:
        """Systems and seeds without a result."""
        present = {(run.system, run.seed) for run in self.study.runs}
        wanted = [(name, seed) for name in self.study.systems for seed in self.study.seeds]
        return [key for key in wanted if key not in present]

    @property
    def failed(self) -> List[Run]:
        """The runs that failed."""
        return [run for run in self.study.runs if not run.done]

    @property
    def diverged(self) -> Dict[str, List[Tuple[str, int]]]:
        """Systems and seeds of finished runs with an infinite score or none (NaN), by measure."""
        found = {
            name: [
                (run.system, run.seed)
                for run in self.study.runs
                if run.done and not math.isfinite(run.scores.get(name) or 0.0)
            ]
            for name in self.study.measures
        }
        return {name: keys for name, keys in found.items() if keys}

    def run(self, system: str, seed: int) -> Optional[Run]:
        """The finished run of *system* with *seed*, if there is one."""
        return next((run for run in self.study.of(system) if run.seed == seed), None)


def gather(study: Study) -> Evidence:
    """Compute the statistics of a study.

    Its plan may name the system that the others are compared with as ``baseline``; without, it is
    the first one.

    Args:
        study: the results.
    """
    baseline = study.plan.get("baseline")
    if baseline not in study.systems:
        baseline = study.systems[0] if study.systems else ""
    scores = {name: _scores(study, name) for name in study.measures}
    comparisons = {
        name: compare(found, study.measures[name].better)
        for name, found in scores.items()
        if any(found.values())
    }
    return Evidence(study, baseline, scores, comparisons)


def _scores(study: Study, measure: str) -> Dict[str, Dict[int, float]]:
    found: Dict[str, Dict[int, float]] = {}
    for name in study.systems:
        values = {run.seed: run.scores.get(measure) for run in study.of(name)}
        known = {seed: float(value) for seed, value in values.items() if value is not None}
        found[name] = {seed: value for seed, value in known.items() if math.isfinite(value)}
    return found


def read_lines(run: Run, *keys: str) -> List[str]:
    """Lines of one of the files of a run.

    Args:
        run: a run.
        keys: the way to the file's name in ``files``, such as ``hypotheses``, or ``answers`` and a
            task.

    Returns:
        nothing if the run has no such file.

    Raises:
        UsageError: it cannot be read.
    """
    found: Any = run.files
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    if not found:
        return []
    path = run.folder / Path(str(found))
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read ({error}); remove its run to repeat it") from None
    return split_lines(text)


def values_of(commands: Sequence[str], flag: str) -> List[str]:
    """The values of a flag, in the order of the commands.

    >>> values_of(["train --seed 1 --arch 'a b'", "generate --beam 4"], "--arch")
    ['a b']

    Args:
        commands: command lines, as for a shell.
        flag: a flag such as ``--beam``.
    """
    found = []
    for command in commands:
        words = shlex.split(command)
        found += [value for word, value in zip(words, words[1:]) if word == flag]
    return found
