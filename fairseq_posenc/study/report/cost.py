"""Time and memory, measured in the runs of the study."""

from typing import Callable, List, Optional, Tuple

from fairseq_posenc.study.report.document import Section, Table
from fairseq_posenc.study.report.evidence import Evidence
from fairseq_posenc.study.report.words import spread
from fairseq_posenc.study.results import Run
from fairseq_posenc.study.statistics import summarise


def _speed(run: Run) -> Optional[float]:
    seconds = run.seconds.get("train")
    return run.tokens / seconds if seconds and run.tokens else None


def _stage(name: str) -> Callable[[Run], Optional[float]]:
    return lambda run: run.seconds.get(name)


def cost_section(evidence: Evidence) -> Section:
    """Seconds of each stage, tokens per second of training, and memory."""
    runs = [run for name in evidence.systems for run in evidence.study.of(name)]
    stages = dict.fromkeys(stage for run in runs for stage in run.seconds)
    columns: List[Tuple[str, Callable[[Run], Optional[float]]]] = [
        ("training, tokens/s", _speed),
        *((f"{stage}, s", _stage(stage)) for stage in stages),
        ("memory, MB", lambda run: run.peak_memory_mb or None),
    ]
    columns = [(title, of) for title, of in columns if any(of(run) for run in runs)]
    if not columns:
        return Section("Speed and memory", [])
    rows = []
    for name in evidence.systems:
        found = [[of(run) for run in evidence.study.of(name)] for _, of in columns]
        known = [[value for value in values if value is not None] for values in found]
        rows.append([name, *(spread(summarise(v) if v else None) for v in known)])
    if columns[0][1] is _speed:
        speeds = {
            name: summarise([s for s in map(_speed, evidence.study.of(name)) if s] or [0.0]).mean
            for name in evidence.systems
        }
        base = speeds.get(evidence.baseline)
        for row in rows:
            row.insert(2, f"{speeds[row[0]] / base:.2f}" if base and speeds[row[0]] else "–")
    header = ["system", *(title for title, _ in columns)]
    if columns[0][1] is _speed:
        header.insert(2, "relative")
    caption = (
        "Measured in the runs of this study, mean ± standard deviation over the seeds; runs that "
        "ran side by side shared the machine. Relative to the baseline, "
        f"{evidence.baseline}. Memory is the peak of the training."
    )
    return Section("Speed and memory", [Table(caption, header, rows)])
