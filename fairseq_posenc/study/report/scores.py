"""Tables and figures of the measures, with tests across seeds and on the sentences of each seed."""

import shlex
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

from fairseq_posenc.study.report.document import (
    Details,
    Heading,
    Points,
    Prose,
    Section,
    Table,
    best_of,
    capitalised,
    number,
    p_value,
    plural,
    signed,
    spread,
)
from fairseq_posenc.study.report.figures import dot_plot
from fairseq_posenc.study.results import Measure, Run, Study
from fairseq_posenc.study.sentences import (
    ROW_SCORES,
    TRANSLATION_METRICS,
    Untestable,
    compare_answers,
    compare_translations,
    metric,
)
from fairseq_posenc.study.statistics import LEVEL, Comparison, holm

METHOD = (
    "Mean ± standard deviation over the seeds, and in brackets the 95 % interval of the mean by "
    "Student's t over the seeds of one system.",
    "Systems that share a letter in a column are not separable at the 5 % level; systems that "
    "share none are.",
    "The test is the t-test of differences paired by seed. With more than two systems its error "
    "is pooled over all of them, as in an analysis of variance with the seeds as blocks, which "
    "assumes that their scores vary alike.",
    "p-values are corrected for all pairs of systems by Holm's method, separately for each "
    "measure. Intervals of differences are 95 % intervals of the same model, not corrected.",
    "“This pair alone” is the paired t-test on two systems only, not corrected; it assumes "
    "nothing about the others, but two or three seeds give it little power. The summary names the "
    "differences that hold for the pair alone, too; all others rest on the pooled error.",
    "Tests on sentences (sacreBLEU's paired bootstrap and approximate randomisation with 1,000 "
    "samples; McNemar's exact test for accuracies, paired permutation for other scores) ask in "
    "each seed whether the difference would hold on other sentences; they are corrected by Holm's "
    "method for the number of systems and say nothing about other seeds.",
)


def results_section(study: Study) -> Section:
    """One table of all measures, then each measure against the baseline."""
    if not study.scored:
        return Section("Results", [])
    parts: List[Any] = [_overall(study)]
    if any(not comparison.tested for comparison in study.comparisons.values()):
        parts.append(Prose("Measures without letters have too few seeds for a test across seeds."))
    for measure in study.scored:
        parts += _measure(study, measure)
    parts.append(Details("How to read these tables", [Points(METHOD)]))
    return Section("Results", parts)


def _heading(measure: Measure) -> str:
    return f"{measure.label} {'↑' if measure.better == 'higher' else '↓'}"


def _overall(study: Study) -> Table:
    first = study.comparisons[study.scored[0].name]
    order = [*first.order, *(name for name in study.finished if name not in first.order)]
    header, rows = ["system"], [[name] for name in order]
    text, best = [], []
    for measure in study.scored:
        comparison = study.comparisons[measure.name]
        best += [(order.index(name), len(header)) for name in best_of(comparison)]
        header.append(_heading(measure))
        for row in rows:
            row.append(_cell(comparison, row[0]))
        if comparison.letters:
            text.append(len(header))
            header.append("group")
            for row in rows:
                row.append(comparison.letters.get(row[0], ""))
    caption = (
        f"All measures, by {study.scored[0].label}. ↑ higher is better, ↓ lower is better. "
        "The best mean of each is bold."
    )
    if any(s.interval for c in study.comparisons.values() for s in c.summaries.values()):
        caption += " Mean ± standard deviation over the seeds, and the 95 % interval of the mean."
    if text:
        caption += " Systems that share a letter of a group are not separable."
    if any(comparison.unbalanced for comparison in study.comparisons.values()):
        caption += (
            " Where seeds are missing, compare letters and differences, which are those of the "
            "same seeds, not means."
        )
    return Table(caption, header, rows, text=text, strong=best)


def _cell(comparison: Comparison, system: str) -> str:
    """Mean, deviation, interval, and the number of seeds if others have more, line by line."""
    summary = comparison.summaries.get(system)
    if summary is None:
        return spread(summary)
    lines = [spread(summary)]
    if summary.interval is not None:
        low, high = (number(end, summary.mean) for end in summary.interval)
        lines.append(f"({low} to {high})")
    most = max(other.seeds for other in comparison.summaries.values())
    if summary.seeds < most:
        lines.append(f"{summary.seeds} of {plural(most, 'seed')}")
    return "\n".join(lines)


def _measure(study: Study, measure: Measure) -> List[Any]:
    comparison, baseline = study.comparisons[measure.name], study.baseline
    points = {name: list(study.scores[measure.name][name].values()) for name in comparison.order}
    unit = f" ({measure.unit})" if measure.unit else ""
    caption = (
        f"{capitalised(measure.label)}{unit}, {measure.better} is better: mean over the seeds "
        "(dot), each seed (tick) and the 95 % interval of the mean (line); lines that reach the "
        f"edge go on. The diamond and the dashed line are the baseline, {baseline}."
    )
    figure = dot_plot(
        f"score-{measure.name}", caption, comparison, points, baseline, f"{measure.label}{unit}"
    )
    parts: List[Any] = [Heading(capitalised(measure.label)), figure]
    if comparison.noisy:
        parts.append(
            Prose(
                f"More than half of the pooled error comes from {comparison.noisy}: from seed to "
                "seed, its scores change unlike those of the others, which rise and fall together; "
                "its standard deviation may well be the smallest. Differences between the others "
                "may be larger than their p-values suggest."
            )
        )
    if baseline in comparison.summaries and len(comparison.order) > 1:
        parts += _differences(study, measure)
    return parts


def _differences(study: Study, measure: Measure) -> List[Any]:
    comparison, baseline = study.comparisons[measure.name], study.baseline
    by_test, reasons = sentence_tests(study, measure.name)
    header = ["system", f"difference in {measure.label}"]
    header += ["95 % interval", "p (Holm)", "this pair alone"] if comparison.tested else []
    text = list(range(len(header), len(header) + len(by_test)))
    header += list(by_test)
    rows = []
    for name in comparison.order:
        if name == baseline:
            continue
        difference = comparison.differences[name, baseline]
        like = comparison.summaries[baseline].mean
        row = [name, signed(difference.mean, like)]
        if comparison.tested:
            ends = difference.interval
            interval = (
                "–" if ends is None else f"{number(ends[0], like)} to {number(ends[1], like)}"
            )
            row += [interval, p_value(difference.adjusted), p_value(difference.alone)]
        for found in by_test.values():
            row.append(found.get(name, "–"))
        rows.append(row)
    caption = f"{capitalised(measure.label)}: difference to the baseline, {baseline}."
    if by_test:
        caption += " Last: in how many seeds a test on the sentences finds a difference."
    parts: List[Any] = [Table(caption, header, rows, text=text)]
    if reasons:
        parts.append(Prose(f"Tests on sentences are missing because {'; '.join(reasons)}."))
    return parts


# --- tests on sentences, of each system against the baseline, in each seed


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
    pairs = [line.split("\t") for line in run.lines("answers", task)]
    complete = [pair for pair in pairs if len(pair) == 2]
    return [pair[0] for pair in complete], [pair[1] for pair in complete]
