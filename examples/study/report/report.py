"""Write the report of a study into the study's folder ``report``.

    python examples/study/report/report.py runs/multi30k

Makes ``report.md`` and its ``figures``, ``results.csv`` with a row for each run,
``differences.csv`` with the tests of all pairs of systems, and ``results.tex``, and replaces an
earlier report.
"""

import argparse
import math
import os
from itertools import combinations
from pathlib import Path
from typing import Dict, List, Optional, Tuple

import figures
import pandas as pd
import sections
from limits import shortcomings
from runs import Measure, Study, csv_table, read_study
from seeds import LEVEL, Comparison, Difference, compare, seeds_for
from sentences import sentence_tests
from writing import Table, capitalised, ends, markdown, names, number, p_value, plural

MOST_SEEDS = 1000  # larger numbers of seeds are printed as > 1000
METHOD = (
    "Differences are tested by t-tests in the additive model of systems and seeds, with an error "
    "pooled over all systems, and Holm's correction over all pairs; “pair alone” is the paired "
    "t-test without correction."
)
Comparisons = Dict[str, Comparison]
SentenceTests = Tuple[Dict[str, Dict[str, str]], List[str]]


def overall(study: Study, found: Comparisons, intervals: bool = True) -> Table:
    """A table of all measures of all systems, sorted by the first measure, the best on top.

    Args:
        intervals: whether to show intervals, and differences from the baseline on the first
            measure, instead of standard deviations.
    """
    first = found[study.measures[0].name].summary.index
    order = [*first, *(name for name in study.systems if name not in first)]
    columns, strong = {"system": order}, []
    for measure in study.measures:
        comparison = found[measure.name]
        strong += [(order.index(name), len(columns)) for name in best_of(comparison)]
        title = f"{measure.label} {'↑' if measure.better == 'higher' else '↓'}"
        columns[title] = [_cell(comparison, name, intervals) for name in order]
        if intervals and measure is study.measures[0] and study.baseline in first:
            columns.update(_against(comparison, order, study.baseline))
    told = "Mean (95 % interval by Student's t)" if intervals else "Mean ± standard deviation"
    caption = (
        f"{told} over the seeds, in the order of {study.measures[0].label}; the best mean is bold. "
        "Systems that share a letter are not separable."
    )
    if study.missing():
        caption += " Where seeds are missing, compare letters, not means."
    return Table(caption, list(columns), list(zip(*columns.values())), strong=strong)


def _against(comparison: Comparison, order: List[str], baseline: str) -> Dict[str, List[str]]:
    """Each system's difference from the baseline, with its p-values."""
    columns: Dict[str, List[str]] = {f"− {baseline}": [], "p (Holm)": [], "pair alone": []}
    for system in order:
        one = comparison.differences.get((system, baseline), Difference(math.nan))
        text = number(one.mean, comparison.summary["mean"][baseline])
        cells = [f"+{text}" if one.mean >= 0 else text, p_value(one.adjusted), p_value(one.alone)]
        for column, cell in zip(columns.values(), cells):
            column.append(cell)
    return columns


def _cell(comparison: Comparison, system: str, intervals: bool) -> str:
    if system not in comparison.summary.index:
        return "–"
    one, most = comparison.summary.loc[system], comparison.summary["count"].max()
    text, deviation = number(one["mean"]), one["std"]
    if intervals and not math.isnan(one["low"]):
        text += f" {ends(one['low'], one['high'], one['mean'])}"
    elif not math.isnan(deviation):
        text += f" ± {number(deviation, one['mean'])}"
    text += f" {comparison.letters[system]}" if system in comparison.letters else ""
    if one["count"] < most:
        text += f"\n{one['count']:.0f} of {plural(int(most), 'seed')}"
    return text


def best_of(comparison: Comparison) -> List[str]:
    """The systems whose mean, rounded as in the report, equals the best mean."""
    means = comparison.summary["mean"].map(number)
    return [str(name) for name in means.index[means == means.iloc[0]]]


def verdict(comparison: Comparison, measure: Measure, baseline: str) -> str:
    """Sentences: the best system, and which systems are separable from it and the baseline."""
    best, *ties = best_of(comparison)
    who = f"{names([best, *ties])} share" if ties else f"{best} has"
    told = [
        f"{capitalised(measure.label)} ({measure.better} is better): {who} the best mean, "
        f"{number(comparison.summary['mean'][best])}."
    ]
    if len(comparison.summary) > 1 and not comparison.letters and not comparison.assumed:
        told.append(
            "One seed cannot show whether the systems differ or only the seeds: repeat with two or "
            "more."
        )
    asked = {best: {0: "Not separable from it"}}
    if best != baseline and baseline in comparison.summary.index:
        against = f"than {baseline}, the baseline"
        asked[baseline] = {-1: f"Better {against}", 1: f"Worse {against}"}
    for system, titles in asked.items() if comparison.letters else ():
        others = [name for name in comparison.summary.index if name != system]
        for relation, title in titles.items():
            found = [name for name in others if comparison.relation(system, name) == relation]
            listed = f"all {len(others)} others" if len(found) == len(others) > 3 else names(found)
            told += [f"{title}: {listed}."] if found else []
    return " ".join(told)


def doubts(study: Study, found: Comparisons) -> List[str]:
    """A sentence on measures whose scores contradict the assumptions of the pooled test, if any."""
    doubted = [
        measure.label
        for measure in study.measures
        if min(found[measure.name].assumed.values(), default=1) < LEVEL
    ]
    return [
        "The test assumes that systems vary alike, with normal errors; Levene's or Shapiro's test "
        f"(p < {LEVEL}) speaks against it for {names(doubted)}: these have no letters, and "
        "only uncorrected tests of each pair alone."
    ][: len(doubted)]


def differences(study: Study, found: Comparisons, tests: Dict[str, SentenceTests]) -> pd.DataFrame:
    """A row for each measure and pair of systems.

    The last columns say in how many seeds a test on sentences finds a difference from the
    baseline; ``seeds_needed`` is the number of seeds that would separate an inseparable pair.
    """
    rows = []
    for measure, comparison in found.items():
        order = sorted(comparison.summary.index, key=lambda name: name == study.baseline)
        for first, second in combinations(order, 2):
            one = comparison.differences[first, second]
            low, high = one.interval or (math.nan, math.nan)
            row = {"measure": measure, "system": first, "against": second}
            row.update(difference=one.mean, low=low, high=high, p=one.p, p_holm=one.adjusted)
            row.update(p_pair_alone=one.alone, seeds_needed=_needed(one))
            if second == study.baseline:
                row.update({test: told.get(first) for test, told in tests[measure][0].items()})
            rows.append(row)
    return pd.DataFrame(rows)


def _needed(one: Difference) -> str:
    """The number of seeds that would separate a pair; empty if it is separable."""
    if one.separable or not one.deviation or not one.mean:
        return ""
    effect = abs(one.mean) / one.deviation
    # finding the number for so small an effect would take long
    return "> 1000" if effect < 0.08 or (n := seeds_for(effect)) > MOST_SEEDS else str(n)


def write(study: Study) -> Path:
    """Write the report, and return the path of its Markdown file."""
    folder = study.folder / "report"
    drawn = folder / "figures"
    drawn.mkdir(parents=True, exist_ok=True)
    for old in drawn.glob("*.svg"):
        old.unlink()
    found = {one.name: compare(study.scores(one.name), one.better) for one in study.measures}
    tests = {one.name: sentence_tests(study, one) for one in study.measures}
    plan = study.plan
    title = plan.get("title") or plan.get("name") or "Comparison of position encodings"
    results, short = [], []
    for first in study.measures[:1]:
        short.append(verdict(found[first.name], first, study.baseline))
        name, shown = f"score-{first.name}", (study.scores(first.name), found[first.name].summary)
        figures.dots(*shown, first, study.baseline, drawn / f"{name}.svg")
        caption = f"{first.label}: means with 95 % intervals, and seeds (ticks)"
        results = [METHOD, overall(study, found).markdown(), sections.picture(name, caption)]
    weak = [*shortcomings(study), *doubts(study, found)]
    for reason in {reason: 0 for _, reasons in tests.values() for reason in reasons}:
        weak.append(f"Tests on sentences are missing: {reason}.")
    told: List[Tuple[str, List[str]]] = [
        ("Where it falls short", _bullets(weak)),
        ("What was compared", sections.compared(study)),
        ("Results", results),
        ("Generated tasks", sections.generated(study, drawn)),
        ("From a trained model", sections.from_trained(study)),
        ("Budgets", sections.budgets(study, drawn)),
        ("Learning curves", sections.learning(study, drawn)),
        ("Extrapolation", sections.extrapolation(study, drawn)),
        ("Speed and memory", sections.cost(study)),
        ("Failed and missing runs", sections.absent(study)),
        ("To repeat it", sections.repeating(study)),
    ]
    parts = [f"# {markdown(str(title))}"]
    parts += [markdown(about)] if (about := " ".join(str(plan.get("about") or "").split())) else []
    parts += short or ["No run has finished yet."]
    for heading, section in told:
        parts += [f"## {heading}", *section] if section else []
    _replace(folder / "results.csv", _csv(csv_table(study)))
    if study.measures:
        _replace(folder / "differences.csv", _csv(differences(study, found, tests), "%.6g"))
        _replace(folder / "results.tex", overall(study, found, intervals=False).latex())
    return _replace(folder / "report.md", "\n\n".join(parts) + "\n")


def _bullets(sentences: List[str]) -> List[str]:
    return ["\n".join(f"- {markdown(one)}" for one in sentences)] if sentences else []


def _csv(table: pd.DataFrame, numbers: Optional[str] = None) -> str:
    return str(table.to_csv(index=False, lineterminator="\n", float_format=numbers))


def _replace(path: Path, text: str) -> Path:
    partial = path.with_name(f"{path.name}.part")
    partial.write_text(text, encoding="utf-8")
    os.replace(str(partial), str(path))
    return path


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("study", metavar="STUDY", help="the folder of the study")
    print(write(read_study(parser.parse_args().study)))


if __name__ == "__main__":
    main()
