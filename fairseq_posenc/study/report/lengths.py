"""Generated tasks: the length at which each system breaks, and right outputs by length."""

from statistics import mean
from typing import Any, Dict, Iterable, List, Mapping, Sequence

import numpy as np

from fairseq_posenc.study.aggregates import Aggregate, aggregate
from fairseq_posenc.study.report.curves import panels, table_by_length
from fairseq_posenc.study.report.document import (
    Details,
    Section,
    Table,
    names,
    number,
    plural,
    seed_counts,
)
from fairseq_posenc.study.report.figures import small_multiples
from fairseq_posenc.study.report.heat import heat_map
from fairseq_posenc.study.results import Study

TITLE = "Generated tasks"
#: The percentage of right outputs up to which a model is not said to break.
ENOUGH = 90.0
#: What is told of each task, and of the mean of all: a name, its unit, and a title for a column.
TOLD = {
    "breaking": ("breaking length over training length", "", "breaking length"),
    "beyond": ("right beyond the training lengths", "%", "right beyond (%)"),
    "within": ("right within the training lengths", "%", "right within (%)"),
}
ALL = "mean"  # the row of all tasks
CONTROLS = ("parity", "counting")  # where models are expected to fail; means leave them out
#: Each system's results, for each seed: the percentage of right outputs by task and by length.
ByLength = Mapping[str, Sequence[Mapping[str, Mapping[int, float]]]]


def lengths_section(study: Study) -> Section:
    """A map of where systems break, means over tasks, and curves of each task."""
    trained = {
        task: max(settings["lengths"])
        for task, settings in (study.plan.get("generated") or {}).items()
    }
    found: ByLength = {
        name: [run.lengths for run in study.of(name) if all(map(run.lengths.get, trained))]
        for name in study.finished
    }
    found = {name: runs for name, runs in found.items() if runs}
    if not trained or not found:
        return Section(TITLE, [])
    parts: List[Any] = [_map(found, trained), _means(found, trained)]
    for task, longest in trained.items():
        parts += _curves(study, found, task, longest)
    return Section(TITLE, parts)


def without_controls(tasks: Iterable[str]) -> List[str]:
    """The *tasks* over which means are taken: all but controls, or all if every task is a control.

    >>> without_controls(["copy", "parity"]), without_controls(["parity"])
    (['copy'], ['parity'])
    """
    named = list(tasks)
    return [name for name in named if name not in CONTROLS] or named


def _map(found: ByLength, trained: Dict[str, int]) -> Any:
    """The breaking length over the longest of the training, mean over seeds."""
    ratios = {
        (task, name): mean(breaking_length(dict(run[task])) / longest for run in runs)
        for task, longest in trained.items()
        for name, runs in found.items()
    }
    over_tasks = {
        name: mean(ratios[task, name] for task in without_controls(trained)) for name in found
    }
    columns = sorted(found, key=lambda name: -over_tasks[name])
    reached = {
        task: max(length for runs in found.values() for run in runs for length in run[task])
        / longest
        for task, longest in trained.items()
    }
    values = [[ratios[task, name] for name in columns] for task in trained]
    texts = [
        [_ratio(ratio, ratio >= reached[task]) for ratio in line]
        for task, line in zip(trained, values)
    ]
    values.append([over_tasks[name] for name in columns])
    texts.append([_ratio(over_tasks[name]) for name in columns])
    caption = (
        f"The longest length at which, as at all shorter ones, {ENOUGH:g} % or more of the outputs "
        "are right, over the longest length of the training: 1 is as long as in the training, 0 "
        "that not even the shortest inputs are done. ≥: right up to the longest inputs of the "
        f"test. Mean over {seed_counts(map(len, found.values()))}; systems by their mean over tasks"
        f"{_without(trained)}."
    )
    return heat_map("breaking", caption, [*trained, ALL], columns, np.array(values), texts, apart=1)


def _without(trained: Iterable[str]) -> str:
    """The controls among the tasks, which means leave out, as a remark in brackets."""
    controls = sorted(set(trained) - set(without_controls(trained)))
    return f" (without {names(controls)})" if controls else ""


def _ratio(ratio: float, at_end: bool = False) -> str:
    """A ratio with two decimals at most.

    >>> _ratio(1.25), _ratio(1.0), _ratio(4.0, True)
    ('1.25', '1', '≥4')
    """
    text = f"{ratio:.2f}".rstrip("0").rstrip(".")
    return f"≥{text}" if at_end else text


def _means(found: ByLength, trained: Dict[str, int]) -> Table:
    """Interquartile means over tasks and seeds."""
    rows, chosen = [], without_controls(trained)
    for name, runs in found.items():
        scores = [
            {task: task_scores(dict(run[task]), trained[task]) for task in chosen} for run in runs
        ]
        row = [name]
        for kind in TOLD:
            row.append(_shown(aggregate([[one[t][kind] for t in chosen] for one in scores])))
        rows.append(row)
    caption = (
        f"Interquartile means over {plural(len(chosen), 'task')}{_without(trained)} and all seeds "
        "(Agarwal et al. 2021), with the 95 % interval of the bootstrap that draws seeds anew for "
        "each task: the breaking length over the longest of the training, and outputs that are "
        "right at lengths beyond and within those of the training. The tables above have plain "
        "means over the same tasks."
    )
    return Table(caption, ["system", *(title for *_, title in TOLD.values())], rows)


def _shown(found: Aggregate) -> str:
    value = number(found.value)
    if found.interval is None:
        return value
    low, high = (number(end, found.value) for end in found.interval)
    return f"{value}\n({low} to {high})"


def _curves(study: Study, found: ByLength, task: str, longest: int) -> List[Any]:
    """Right outputs by length, as a figure and as a table."""
    series = {name: [dict(run[task]) for run in runs] for name, runs in found.items()}
    lines = panels(series)
    parts: List[Any] = []
    if lines:
        parts.append(
            small_multiples(
                f"lengths-{task}",
                f"{task}: right outputs by length",
                lines,
                study.baseline,
                ("length", "right outputs (%)"),
                ("log", "linear"),
                note=f"The dotted line is the longest length of the training, {longest}.",
                limits=(-4.0, 104.0),
                mark=longest,
            )
        )
    caption = (
        f"{task}: right outputs in percent by length, mean ± standard deviation over the seeds."
    )
    return [*parts, Details(f"{task}, as a table", [table_by_length(caption, series)])]


def breaking_length(by_length: Dict[int, float]) -> int:
    """The longest length that, like all shorter ones, has enough right outputs; 0 if none has.

    >>> breaking_length({5: 100.0, 10: 93.0, 20: 50.0, 40: 95.0})
    10
    """
    longest = 0
    for length in sorted(by_length):
        if by_length[length] < ENOUGH:
            break
        longest = length
    return longest


def task_scores(by_length: Dict[int, float], trained: int) -> Dict[str, float]:
    """What is told of a task: within and beyond the training lengths, and where it breaks.

    Args:
        by_length: percentages of right outputs.
        trained: the longest length of the training.
    """
    return {
        "within": mean(value for length, value in by_length.items() if length <= trained),
        "beyond": mean(value for length, value in by_length.items() if length > trained),
        "breaking": breaking_length(by_length) / trained,
    }
