"""Time and memory of the runs, and of short trainings that are made to measure both."""

import statistics
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from fairseq_posenc.study.report.document import (
    Points,
    Section,
    Table,
    names,
    plural,
    table_of_means,
)
from fairseq_posenc.study.results import RESULT, RUNS, Run, Study, read_run
from fairseq_posenc.study.statistics import summarise

TITLE = "Speed of the training"
Value = Callable[[Run], Optional[float]]


def _tokens_per_second(run: Run) -> Optional[float]:
    seconds = run.seconds.get("train")
    return run.tokens / seconds if seconds and run.tokens else None


def _seconds(stage: str) -> Value:
    return lambda run: run.seconds.get(stage)


def cost_section(study: Study) -> Section:
    """Seconds of each stage, tokens per second of training, and memory."""
    runs = [run for name in study.finished for run in study.of(name)]
    stages = dict.fromkeys(stage for run in runs for stage in run.seconds)
    columns: List[Tuple[str, Value]] = [
        ("training, tokens/s", _tokens_per_second),
        *((f"{stage}, s", _seconds(stage)) for stage in stages),
        ("memory, MB", lambda run: run.peak_memory_mb or None),
    ]
    columns = [(title, of) for title, of in columns if any(of(run) for run in runs)]
    if not columns:
        return Section("Speed and memory", [])
    values = {
        name: [
            [value for value in map(of, study.of(name)) if value is not None] for _, of in columns
        ]
        for name in study.finished
    }
    caption = (
        "Measured in the runs of this study, mean ± standard deviation over the seeds; runs that "
        "ran side by side shared the machine. Relative to the baseline, "
        f"{study.baseline}. Memory is the peak of the training."
    )
    table = table_of_means(caption, [title for title, _ in columns], values)
    if columns[0][1] is _tokens_per_second:
        means = {name: summarise(found[0]).mean for name, found in values.items() if found[0]}
        base = means.get(study.baseline)
        told = {name: f"{mean / base:.2f}" for name, mean in means.items() if base and mean}
        rows = [[*row[:2], told.get(row[0], "–"), *row[2:]] for row in table.rows]
        header = [*table.header[:2], "relative", *table.header[2:]]
        table = table._replace(header=header, rows=rows)
    return Section("Speed and memory", [table])


def speed_section(study: Study) -> Section:
    """Tokens per second, relative to the baseline, and memory; empty without measurements."""
    absent = _absent(study) if study.plan.get("speed_runs") else []
    rounds = [made for made in study.speed if made]
    found = {name: [made[name] for made in rounds if name in made] for name in study.systems}
    found = {name: runs for name, runs in found.items() if runs}
    if not found:
        return Section(TITLE, absent)
    rows = [
        [
            name,
            f"{statistics.median(map(_rate, runs)):,.0f}",
            _range(_relative(rounds, name, study.baseline)),
            f"{max(run.peak_memory_mb for run in runs):,.0f}",
        ]
        for name, runs in found.items()
    ]
    environments = [run.environment for runs in found.values() for run in runs]
    devices = list(dict.fromkeys(str(one.get("device", "the device")) for one in environments))
    caption = (
        f"The first {study.plan['speed']['updates']} updates of the training on "
        f"{names(devices)}, in {plural(len(rounds), 'round')} of all systems. Median over the "
        "last two thirds of the updates and over the rounds; relative to the baseline, "
        f"{study.baseline}, in the same round, the median and the range."
    )
    header = ["system", "target tokens/s", "relative", "memory, MB"]
    return Section(TITLE, [Table(caption, header, rows), *absent])


def _absent(study: Study) -> List[Any]:
    """The measurements that failed, with the end of their logs, and those still to be made."""
    planned = [study.folder / RUNS / name for name in study.plan["speed_runs"]]
    ended = [(number, read_run(path)) for number, path in enumerate(planned) if _ended(path)]
    told = []
    for number, run in ended:
        if not run.done:
            turn = number // len(study.systems) + 1
            last = (run.error.strip().splitlines() or ["no message"])[-1]
            told.append(f"{run.system}, round {turn}: failed: {last}")
    if len(ended) < len(planned):
        told.append(f"{len(planned) - len(ended)} of {len(planned)} are not measured yet.")
    return [Points(told)] if told else []


def _ended(folder: Path) -> bool:
    return (folder / RESULT).is_file()


def _rate(run: Run) -> float:
    return run.scores["tokens_per_second"]


def _relative(rounds: Sequence[Dict[str, Run]], name: str, baseline: str) -> List[float]:
    both = [made for made in rounds if {name, baseline} <= set(made)]
    return [_rate(made[name]) / _rate(made[baseline]) for made in both]


def _range(ratios: Sequence[float]) -> str:
    """Median and range: ``1.05 (1.02 to 1.07)``, ``1.05`` where they are the same."""
    if not ratios:
        return "–"
    middle, low, high = (
        f"{one:.2f}" for one in (statistics.median(ratios), min(ratios), max(ratios))
    )
    return middle if low == high else f"{middle} ({low} to {high})"
