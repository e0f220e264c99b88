"""Tables and figures of the measures, with tests across seeds."""

from typing import Any, List

from fairseq_posenc.study.report.document import (
    Details,
    Heading,
    Points,
    Prose,
    Section,
    Table,
    best_of,
    capitalised,
    names,
    number,
    p_value,
    plural,
    signed,
    spread,
)
from fairseq_posenc.study.report.figures import dot_plot
from fairseq_posenc.study.report.sentence_tests import sentence_tests
from fairseq_posenc.study.results import Measure, Study
from fairseq_posenc.study.statistics import Comparison, Difference

MOST_SEEDS = 1000  # larger numbers of seeds are not told
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
    "“Seeds to separate” is told where a pair is not separable: with that many seeds and these two "
    "systems alone, the paired t-test at the 5 % level finds the difference in four of five "
    "studies, if the difference and its deviation over seeds are as measured here.",
    "Tests on sentences (sacreBLEU's paired bootstrap and approximate randomisation with 1,000 "
    "samples; McNemar's exact test for accuracies, paired permutation for other scores) ask in "
    "each seed whether the difference would hold on other sentences; they are corrected by Holm's "
    "method for the number of systems and say nothing about other seeds.",
)


def results_section(study: Study) -> Section:
    """One table of all measures, then each measure against the baseline."""
    if not study.scored:
        return Section("Results", [])
    parts: List[Any] = [overall_table(study)]
    if any(not comparison.tested for comparison in study.comparisons.values()):
        parts.append(Prose("Measures without letters have too few seeds for a test across seeds."))
    for measure in study.scored:
        parts += _measure(study, measure)
    parts.append(Details("How to read these tables", [Points(METHOD)]))
    return Section("Results", parts)


def _heading(measure: Measure) -> str:
    return f"{measure.label} {'↑' if measure.better == 'higher' else '↓'}"


def overall_table(study: Study, intervals: bool = True) -> Table:
    """All measures of all systems, the best of the first measure on top.

    Args:
        intervals: whether to give the 95 % interval of each mean.
    """
    first = study.comparisons[study.scored[0].name]
    order = [*first.order, *(name for name in study.finished if name not in first.order)]
    header, rows = ["system"], [[name] for name in order]
    text, best = [], []
    for measure in study.scored:
        comparison = study.comparisons[measure.name]
        best += [(order.index(name), len(header)) for name in best_of(comparison)]
        header.append(_heading(measure))
        for row in rows:
            row.append(_cell(comparison, row[0], intervals))
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
        ends = ", and the 95 % interval of the mean" if intervals else ""
        caption += f" Mean ± standard deviation over the seeds{ends}."
    if text:
        caption += " Systems that share a letter of a group are not separable."
    if any(comparison.unbalanced for comparison in study.comparisons.values()):
        caption += (
            " Where seeds are missing, compare letters and differences, which are those of the "
            "same seeds, not means."
        )
    return Table(caption, header, rows, text=text, strong=best)


def _cell(comparison: Comparison, system: str, intervals: bool) -> str:
    """Mean, deviation, interval, and the number of seeds if others have more, line by line."""
    summary = comparison.summaries.get(system)
    if summary is None:
        return spread(summary)
    lines = [spread(summary)]
    if intervals and summary.interval is not None:
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
        several = len(comparison.noisy) > 1
        parts.append(
            Prose(
                f"More than half of the pooled error comes from {names(comparison.noisy)}: from "
                f"seed to seed, {'their' if several else 'its'} scores change unlike those of the "
                "others, by more or not along with them. Differences between the others may be "
                "larger than their p-values suggest; see “this pair alone”."
            )
        )
    if baseline in comparison.summaries and len(comparison.order) > 1:
        parts += _differences(study, measure)
    return parts


def _seeds_needed(difference: Difference) -> str:
    """The number of seeds that would separate a pair that is not separable."""
    needed = None if difference.separable else difference.seeds_needed
    if needed is None:
        return "–"
    return f"{needed:,}" if needed <= MOST_SEEDS else f"> {MOST_SEEDS:,}"


def _differences(study: Study, measure: Measure) -> List[Any]:
    comparison, baseline = study.comparisons[measure.name], study.baseline
    by_test, reasons = sentence_tests(study, measure.name)
    header = ["system", f"difference in {measure.label}"]
    tests = ["95 % interval", "p (Holm)", "this pair alone", "seeds to separate"]
    header += tests if comparison.tested else []
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
            row.append(_seeds_needed(difference))
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
