"""Tests on the sentences of a test set, of each system against the baseline, in each seed."""

from pathlib import Path
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from fairseq_posenc.study.report.evidence import Evidence, read_lines, values_of
from fairseq_posenc.study.report.words import plural
from fairseq_posenc.study.results import Run
from fairseq_posenc.study.sentences import (
    ROW_SCORES,
    TRANSLATION_METRICS,
    Untestable,
    compare_answers,
    compare_translations,
    metric,
)
from fairseq_posenc.study.statistics import LEVEL, holm

#: p-values by test, then by system.
PValues = Dict[str, Dict[str, float]]
#: Why tests are left out: in order, once each.
Reasons = Dict[str, None]


class Outcome(NamedTuple):
    """In how many seeds a system was significantly better or worse than the baseline."""

    better: int
    worse: int
    seeds: int

    @property
    def text(self) -> str:
        """In words."""
        if not self.better and not self.worse:
            return f"in none of {plural(self.seeds, 'seed')}"
        told = [("better", self.better), ("worse", self.worse)]
        return ", ".join(f"{word} in {n}" for word, n in told if n) + f" of {self.seeds}"


class SentenceTests(NamedTuple):
    """The tests of one measure.

    Args:
        outcomes: by test and system; nothing for a measure that has no answers of its own.
        reasons: why tests are left out.
    """

    outcomes: Dict[str, Dict[str, Outcome]]
    reasons: List[str]


def answers_key(measure: str, tasks: List[str]) -> Optional[Tuple[str, str]]:
    """The task and the score that a measure is named after, such as ``cola_mcc``.

    Args:
        measure: name of the measure.
        tasks: tasks whose answers are known.
    """
    for task in sorted(tasks, key=len, reverse=True):
        kind = measure[len(task) :].lstrip("_")
        if measure.startswith(task) and kind in ("accuracy", *ROW_SCORES):
            return task, kind
    return None


def positive_class(commands: Sequence[str], task: str) -> Optional[str]:
    """The class whose F1 a task reports; None if the commands do not say.

    Args:
        commands: of a run, with the fine-tunings on all tasks.
        task: its key, with which the folders of its fine-tunings begin.
    """
    for command in commands:
        folders = values_of([command], "--save-dir")
        if any(Path(folder).name.startswith(f"{task}-lr") for folder in folders):
            return next(iter(values_of([command], "--positive-label")), None)
    return None


def sentence_tests(evidence: Evidence, measure: str) -> SentenceTests:
    """Compare each system with the baseline, seed by seed.

    Args:
        evidence: the study.
        measure: name of the measure.
    """
    sign = 1 if evidence.study.measures[measure].better == "higher" else -1
    scores = evidence.scores[measure]
    found: Dict[str, Dict[str, List[int]]] = {}
    reasons: Reasons = {}
    for seed, by_test in _by_seed(evidence, measure, reasons):
        for test, p_values in by_test.items():
            for system, p in zip(p_values, holm(list(p_values.values()))):
                higher = scores[system][seed] - scores[evidence.baseline][seed]
                outcome = 0 if p >= LEVEL or not higher else (1 if sign * higher > 0 else -1)
                found.setdefault(test, {}).setdefault(system, []).append(outcome)
    counted = {
        test: {
            system: Outcome(outcomes.count(1), outcomes.count(-1), len(outcomes))
            for system, outcomes in by_system.items()
        }
        for test, by_system in found.items()
    }
    return SentenceTests(counted, list(reasons))


def _by_seed(evidence: Evidence, measure: str, reasons: Reasons) -> Iterator[Tuple[int, PValues]]:
    test = _translations if measure in TRANSLATION_METRICS else _answers
    for seed in evidence.study.seeds:
        base = evidence.run(evidence.baseline, seed)
        if base is None or seed not in evidence.scores[measure].get(evidence.baseline, {}):
            continue
        runs = [evidence.run(name, seed) for name in evidence.systems if name != evidence.baseline]
        others = [run for run in runs if run and seed in evidence.scores[measure][run.system]]
        yield seed, test(measure, base, others, reasons)


def _translations(measure: str, base: Run, others: List[Run], reasons: Reasons) -> PValues:
    references, hypotheses = read_lines(base, "references"), read_lines(base, "hypotheses")
    same = {
        run.system: read_lines(run, "hypotheses")
        for run in others
        if read_lines(run, "references") == references
    }
    same = {name: lines for name, lines in same.items() if len(lines) == len(references)}
    if not same or not references or len(hypotheses) != len(references):
        return {}
    signature = base.signatures.get(measure, "")
    try:
        scorer = metric(measure, signature, references)
    except Untestable as error:
        reasons[str(error)] = None
        return {}
    by_system = compare_translations(scorer, hypotheses, same)
    tests = next(iter(by_system.values()))
    return {test: {name: found[test] for name, found in by_system.items()} for test in tests}


def _answers(measure: str, base: Run, others: List[Run], reasons: Reasons) -> PValues:
    key = answers_key(measure, list(base.files.get("answers") or {}))
    if key is None:
        return {}
    task, kind = key
    labels, first = _columns(base, task)
    positive = positive_class(base.commands, task) if kind == "f1" else None
    found: PValues = {}
    for run in others:
        own_labels, second = _columns(run, task)
        if not labels or own_labels != labels:
            continue
        try:
            test, p = compare_answers(kind, first, second, labels, positive)
        except Untestable as error:
            reasons[str(error)] = None
            continue
        found.setdefault(test, {})[run.system] = p
    return found


def _columns(run: Run, task: str) -> Tuple[List[str], List[str]]:
    pairs = [line.split("\t") for line in read_lines(run, "answers", task)]
    complete = [pair for pair in pairs if len(pair) == 2]
    return [pair[0] for pair in complete], [pair[1] for pair in complete]
