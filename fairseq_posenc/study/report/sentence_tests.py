"""Tests on the sentences of a test set, of each system against the baseline, in each seed."""

from functools import partial
from typing import Dict, Iterator, List, NamedTuple, Optional, Tuple

from fairseq_posenc.study.report.evidence import Evidence, read_lines
from fairseq_posenc.study.report.words import plural
from fairseq_posenc.study.results import Run
from fairseq_posenc.study.sentences import (
    RESAMPLES,
    ROW_SCORES,
    TRANSLATION_METRICS,
    compare_answers,
    compare_translations,
    metric,
)
from fairseq_posenc.study.statistics import LEVEL, holm

#: p-values by test, then by system.
PValues = Dict[str, Dict[str, float]]


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


def sentence_tests(evidence: Evidence, measure: str) -> Dict[str, Dict[str, Outcome]]:
    """Outcomes by test and system; nothing for a measure that has no answers of its own.

    Args:
        evidence: the study.
        measure: name of the measure.
    """
    sign = 1 if evidence.study.measures[measure].better == "higher" else -1
    scores = evidence.scores[measure]
    found: Dict[str, Dict[str, List[int]]] = {}
    for seed, by_test in _by_seed(evidence, measure):
        for test, p_values in by_test.items():
            for system, p in zip(p_values, holm(list(p_values.values()))):
                higher = scores[system][seed] - scores[evidence.baseline][seed]
                outcome = 0 if p >= LEVEL or not higher else (1 if sign * higher > 0 else -1)
                found.setdefault(test, {}).setdefault(system, []).append(outcome)
    return {
        test: {
            system: Outcome(outcomes.count(1), outcomes.count(-1), len(outcomes))
            for system, outcomes in by_system.items()
        }
        for test, by_system in found.items()
    }


def _by_seed(evidence: Evidence, measure: str) -> Iterator[Tuple[int, PValues]]:
    for seed in evidence.study.seeds:
        base = evidence.run(evidence.baseline, seed)
        if base is None or seed not in evidence.scores[measure].get(evidence.baseline, {}):
            continue
        runs = [evidence.run(name, seed) for name in evidence.systems if name != evidence.baseline]
        others = [run for run in runs if run and seed in evidence.scores[measure][run.system]]
        if measure in TRANSLATION_METRICS:
            yield seed, _translations(evidence, measure, base, others)
        else:
            yield seed, _answers(evidence, measure, base, others)
        evidence.memory.save()


def _translations(evidence: Evidence, measure: str, base: Run, others: List[Run]) -> PValues:
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
    scorer = metric(measure, signature, references)
    names = list(same)

    def compute(unknown: List[int]) -> List[Dict[str, float]]:
        others = {names[index]: same[names[index]] for index in unknown}
        return list(compare_translations(scorer, hypotheses, others).values())

    fixed = (measure, signature, RESAMPLES, references, hypotheses)
    by_system = evidence.memory.get_all([(*fixed, same[name]) for name in names], compute)
    return {
        test: {name: tested[test] for name, tested in zip(names, by_system)}
        for test in by_system[0]
    }


def _answers(evidence: Evidence, measure: str, base: Run, others: List[Run]) -> PValues:
    key = answers_key(measure, list(base.files.get("answers") or {}))
    if key is None:
        return {}
    task, kind = key
    labels, first = _columns(base, task)
    found: PValues = {}
    for run in others:
        own_labels, second = _columns(run, task)
        if not labels or own_labels != labels:
            continue
        try:
            inputs = (kind, RESAMPLES, first, second, labels)
            test, p = evidence.memory.get(
                inputs, partial(compare_answers, kind, first, second, labels)
            )
        except ValueError:  # classes or numbers that this test is not made for
            continue
        found.setdefault(test, {})[run.system] = p
    return found


def _columns(run: Run, task: str) -> Tuple[List[str], List[str]]:
    pairs = [line.split("\t") for line in read_lines(run, "answers", task)]
    complete = [pair for pair in pairs if len(pair) == 2]
    return [pair[0] for pair in complete], [pair[1] for pair in complete]
