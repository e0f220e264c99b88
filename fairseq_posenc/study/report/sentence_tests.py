"""Tests on sentences of each system against the baseline, in each seed."""

import shlex
from pathlib import Path
from typing import Dict, Iterator, List, Optional, Sequence, Tuple

from fairseq_posenc.study.answers import pairs_of
from fairseq_posenc.study.report.document import plural
from fairseq_posenc.study.results import Run, Study
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


def in_words(outcomes: Sequence[int]) -> str:
    """In how many seeds a system was significantly better or worse than the baseline.

    >>> in_words([1, 1, 0]), in_words([1, -1, 0]), in_words([0])
    ('better in 2 of 3', 'better in 1, worse in 1 of 3', 'in none of 1 seed')

    Args:
        outcomes: for each seed 1 (better), -1 (worse) or 0.
    """
    told = [("better", outcomes.count(1)), ("worse", outcomes.count(-1))]
    said = ", ".join(f"{word} in {count}" for word, count in told if count)
    return f"{said} of {len(outcomes)}" if said else f"in none of {plural(len(outcomes), 'seed')}"


def answers_key(measure: str, tasks: List[str]) -> Optional[Tuple[str, str]]:
    """The task and the score that a measure is named after, such as ``cola_mcc``.

    Args:
        tasks: tasks whose answers are known.
    """
    for task in sorted(tasks, key=len, reverse=True):
        kind = measure[len(task) :].lstrip("_")
        if measure.startswith(task) and kind in ("accuracy", *ROW_SCORES):
            return task, kind
    return None


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


def positive_class(commands: Sequence[str], task: str) -> Optional[str]:
    """The class whose F1 a task reports; None if the commands do not say.

    Args:
        commands: the commands of a run, with the fine-tunings on all tasks.
        task: key of the task, with which the folders of its fine-tunings begin.
    """
    for command in commands:
        folders = values_of([command], "--save-dir")
        if any(Path(folder).name.startswith(f"{task}-lr") for folder in folders):
            return next(iter(values_of([command], "--positive-label")), None)
    return None


def sentence_tests(study: Study, measure: str) -> Tuple[Dict[str, Dict[str, str]], List[str]]:
    """Compare each system with the baseline, seed by seed.

    Returns:
        the outcomes in words by test and system, nothing for a measure without answers; and the
        reasons why tests are left out.
    """
    sign = 1 if study.measures[measure].better == "higher" else -1
    scores = study.scores[measure]
    found: Dict[str, Dict[str, List[int]]] = {}
    reasons: Reasons = {}
    for seed, by_test in _by_seed(study, measure, reasons):
        for test, p_values in by_test.items():
            for system, p in zip(p_values, holm(list(p_values.values()))):
                higher = scores[system][seed] - scores[study.baseline][seed]
                outcome = 0 if p >= LEVEL or not higher else (1 if sign * higher > 0 else -1)
                found.setdefault(test, {}).setdefault(system, []).append(outcome)
    told = {
        test: {system: in_words(outcomes) for system, outcomes in by_system.items()}
        for test, by_system in found.items()
    }
    return told, list(reasons)


def _by_seed(study: Study, measure: str, reasons: Reasons) -> Iterator[Tuple[int, PValues]]:
    is_translation = measure.partition("_")[0] in TRANSLATION_METRICS
    test = _translations if is_translation else _answers
    for seed in study.seeds:
        base = study.run(study.baseline, seed)
        if base is None or seed not in study.scores[measure].get(study.baseline, {}):
            continue
        runs = [study.run(name, seed) for name in study.finished if name != study.baseline]
        others = [run for run in runs if run and seed in study.scores[measure][run.system]]
        yield seed, test(measure, base, others, reasons)


def _translations(measure: str, base: Run, others: List[Run], reasons: Reasons) -> PValues:
    kind, bar, subset = measure.partition("_")  # bleu_test1: of a further test set
    names = [f"{name}{bar}{subset}" for name in ("references", "hypotheses")]
    references, hypotheses = map(base.lines, names)
    same = {run.system: run.lines(names[1]) for run in others if run.lines(names[0]) == references}
    same = {name: lines for name, lines in same.items() if len(lines) == len(references)}
    if not same or not references or len(hypotheses) != len(references):
        return {}
    signature = base.signatures.get(measure, "")
    try:
        scorer = metric(kind, signature, references)
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
    if not labels:
        return {}
    positive = positive_class(base.commands, task) if kind == "f1" else None
    found: PValues = {}
    for run in others:
        own_labels, second = _columns(run, task)
        if own_labels != labels:
            reasons[f"the answers of {run.system} are not to the baseline's examples"] = None
            continue
        try:
            test, p = compare_answers(kind, first, second, labels, positive)
        except Untestable as error:
            reasons[str(error)] = None
            continue
        found.setdefault(test, {})[run.system] = p
    return found


def _columns(run: Run, task: str) -> Tuple[List[str], List[str]]:
    """Labels and answers; none if the run has no answers to the task."""
    pairs = pairs_of(run.lines("answers", task), f"{run.folder}: answers to {task}")
    return [label for label, _ in pairs], [answer for _, answer in pairs]
