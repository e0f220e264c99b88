"""Write the report of a study, into the folder ``report`` of the study.

    python examples/study/report/report.py runs/multi30k

Makes ``report.md`` with its ``figures``, ``results.csv`` with a row for each run, and
``results.tex``.  An earlier report is replaced.
"""

import argparse
import math
import os
from pathlib import Path
from typing import Any, Dict, List, Tuple

import figures
import sections
from runs import Measure, Study, csv_table, read_study
from seeds import LEVEL, Comparison, Difference, compare, seeds_for
from sentences import sentence_tests
from writing import Table, capitalised, ends, markdown, names, number, p_value, plural

MOST_SEEDS = 1000  # larger numbers of seeds are not told
METHOD = (
    "Differences are tested in the additive model of systems and seeds, whose error is pooled over "
    "all systems, with Holm's correction over all pairs; “pair alone” is the paired t-test on two "
    "systems. The page “The report of a study” in the documentation says which tests these are."
)
Comparisons = Dict[str, Comparison]


def overall(study: Study, found: Comparisons, intervals: bool = True) -> Table:
    """All measures of all systems, the best of the first measure on top."""
    first = found[study.measures[0].name].summary.index
    order = [*first, *(name for name in study.systems if name not in first)]
    header, rows = ["system"], [[name] for name in order]
    text, strong = [], []
    for measure in study.measures:
        comparison = found[measure.name]
        strong += [(order.index(name), len(header)) for name in best_of(comparison)]
        header.append(f"{measure.label} {'↑' if measure.better == 'higher' else '↓'}")
        for row in rows:
            row.append(_cell(comparison, row[0], intervals))
        if comparison.letters:
            text.append(len(header))
            header.append("group")
            for row in rows:
                row.append(comparison.letters.get(row[0], ""))
    caption = (
        f"All measures, by {study.measures[0].label}; the best mean of each is bold. Mean ± "
        f"standard deviation over the seeds{' (95 % interval of the mean)' if intervals else ''}. "
        "Systems that share a letter of a group are not separable. Where seeds are missing, "
        "compare letters and differences, which are those of the same seeds, not means."
    )
    return Table(caption, header, rows, text, (), strong)


def _cell(comparison: Comparison, system: str, intervals: bool) -> str:
    if system not in comparison.summary.index:
        return "–"
    one, most = comparison.summary.loc[system], comparison.summary["count"].max()
    lines = [_spread(one)]
    if intervals and not math.isnan(one["low"]):
        lines.append(f"({ends(one['low'], one['high'], one['mean'])})")
    if one["count"] < most:
        lines.append(f"{one['count']:.0f} of {plural(int(most), 'seed')}")
    return "\n".join(lines)


def _spread(one: Any) -> str:
    mean = number(one["mean"])
    return mean if math.isnan(one["std"]) else f"{mean} ± {number(one['std'], one['mean'])}"


def best_of(comparison: Comparison) -> List[str]:
    """The systems whose mean, rounded as the report shows it, equals the best mean."""
    means = comparison.summary["mean"].map(number)
    return [str(name) for name in means.index[means == means.iloc[0]]]


def verdict(comparison: Comparison, measure: Measure, baseline: str) -> str:
    """The best system on one measure, and which others are separable from it and the baseline."""
    best, *ties = best_of(comparison)
    who = f"{names([best, *ties])} share" if ties else f"{best} has"
    told = [
        f"{capitalised(measure.label)} ({measure.better} is better): {who} the best mean, "
        f"{_spread(comparison.summary.loc[best])}."
    ]
    if len(comparison.summary) > 1 and not comparison.letters:
        told.append(
            "With one seed it cannot be told whether the systems differ or the seeds: repeat with "
            "two or more."
        )
    pairs = [(best, "it")]
    if best != baseline and baseline in comparison.summary.index:
        pairs.append((baseline, f"the baseline, {baseline}"))
    titles = {0: "Not separable from", -1: "Better than", 1: "Worse than"}
    for system, shown in pairs if comparison.letters else ():
        others = [name for name in comparison.summary.index if name != system]
        for relation, title in titles.items():
            found = [name for name in others if comparison.relation(system, name) == relation]
            alone = [name for name in found if comparison.differences[system, name].holds_alone]
            listed = f"all {len(others)} others" if len(found) == len(others) > 3 else names(found)
            kept = "all of them" if alone == found else names(alone) or "none"
            remark = f" (for the pair alone: {kept})" if relation and len(others) > 1 else ""
            told += [f"{title} {shown}: {listed}{remark}."] if found else []
    return " ".join(told)


def of_measure(study: Study, measure: Measure, comparison: Comparison, folder: Path) -> List[str]:
    """One measure: a figure, and each system against the baseline."""
    scores, baseline, name = study.scores(measure.name), study.baseline, f"score-{measure.name}"
    figures.dots(scores, comparison.summary, measure, baseline, folder / f"{name}.svg")
    caption = (
        f"{capitalised(measure.label)}, {measure.better} is better: mean over the seeds (dot), "
        "each seed (tick) and the 95 % interval of the mean by Student's t (line); lines that "
        f"reach the edge go on. The dashed line is the baseline, {baseline}."
    )
    parts = [f"### {markdown(capitalised(measure.label))}", *sections.picture(name, caption)]
    doubted = {test: p for test, p in comparison.assumed.items() if p < LEVEL}
    if doubted:
        said = {"Levene": "vary alike", "Shapiro": "have normal errors"}
        listed = names(
            [f"{said[test]} ({test}'s test: p = {p:.3f})" for test, p in doubted.items()]
        )
        parts.append(
            f"The pooled error assumes that systems {listed}, which these scores speak against: "
            "read “pair alone” first."
        )
    if baseline not in comparison.summary.index or len(comparison.summary) < 2:
        return parts
    by_test, reasons = sentence_tests(study, measure)
    header = ["system", f"difference in {measure.label}"]
    header += ["95 % interval", "p (Holm)", "pair alone", "seeds to separate", *by_test]
    rows = []
    for system in comparison.summary.index:
        if system != baseline:
            one, like = (
                comparison.differences[system, baseline],
                comparison.summary["mean"][baseline],
            )
            row = [system, _signed(one.mean, like), ends(*(one.interval or (math.nan,) * 2), like)]
            row += [p_value(one.adjusted), p_value(one.alone), _needed(one)]
            rows.append([*row, *(told.get(system, "–") for told in by_test.values())])
    caption = f"{capitalised(measure.label)}: difference to the baseline, {baseline}."
    if by_test:
        caption += " Last: in how many seeds a test on the sentences finds a difference."
    parts.append(Table(caption, header, rows, range(6, len(header))).markdown())
    if reasons:
        parts.append(markdown(f"Tests on sentences are missing because {'; '.join(reasons)}."))
    return parts


def _signed(value: float, like: float) -> str:
    text = number(value, like)
    return text if text.startswith("−") else f"+{text}"


def _needed(one: Difference) -> str:
    """The number of seeds that would separate a pair that is not separable."""
    if one.separable or not one.deviation or not one.mean:
        return "–"
    effect = abs(one.mean) / one.deviation
    # with so small an effect the search for the number would be long
    return "> 1,000" if effect < 0.08 or (n := seeds_for(effect)) > MOST_SEEDS else f"{n:,}"


def results(study: Study, found: Comparisons, folder: Path) -> List[str]:
    """One table of all measures, then each measure against the baseline."""
    if not study.measures:
        return []
    parts = [overall(study, found).markdown()]
    for measure in study.measures:
        parts += of_measure(study, measure, found[measure.name], folder)
    return [*parts, METHOD]


def write(study: Study) -> Path:
    """Write the report; returns the Markdown file."""
    folder = study.folder / "report"
    drawn = folder / "figures"
    drawn.mkdir(parents=True, exist_ok=True)
    for old in drawn.glob("*.svg"):
        old.unlink()
    found = {one.name: compare(study.scores(one.name), one.better) for one in study.measures}
    plan = study.plan
    title = plan.get("title") or plan.get("name") or "Comparison of position encodings"
    summary = sections.warnings(study)
    summary += [verdict(found[one.name], one, study.baseline) for one in study.measures]
    told: List[Tuple[str, List[str]]] = [
        ("What was compared", sections.compared(study, drawn)),
        ("Search", sections.search(study, drawn)),
        ("Results", results(study, found, drawn)),
        ("Generated tasks", sections.generated(study, drawn)),
        ("From a trained model", sections.from_trained(study, drawn)),
        ("Learning curves", sections.learning(study, drawn)),
        ("Extrapolation", sections.extrapolation(study, drawn)),
        ("Speed and memory", sections.cost(study, drawn)),
        ("Failed and missing runs", sections.absent(study, drawn)),
        ("To repeat it", sections.repeating(study, drawn)),
    ]
    parts = [f"# {markdown(str(title))}"]
    parts.append("\n".join(f"- {markdown(one)}" for one in summary) or "No run has finished yet.")
    for heading, section in told:
        parts += [f"## {heading}", *section] if section else []
    _replace(folder / "results.csv", csv_table(study).to_csv(index=False, lineterminator="\n"))
    if study.measures:
        _replace(folder / "results.tex", overall(study, found, intervals=False).latex())
    return _replace(folder / "report.md", "\n\n".join(parts) + "\n")


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
