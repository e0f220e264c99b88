"""Speed and memory of the training, measured while nothing else was running."""

import statistics
from typing import Dict, List, Sequence

from fairseq_posenc.study.report.document import Section, Table
from fairseq_posenc.study.report.evidence import Evidence
from fairseq_posenc.study.report.words import plural
from fairseq_posenc.study.results import Run


def speed_section(evidence: Evidence) -> Section:
    """Tokens per second, relative to the baseline, and memory; empty without measurements."""
    title = "Speed, alone on the device"
    rounds = [made for made in evidence.study.speed if made]
    found = {
        name: [made[name] for made in rounds if name in made] for name in evidence.study.systems
    }
    found = {name: runs for name, runs in found.items() if runs}
    if not found:
        return Section(title, [])
    rows = [
        [
            name,
            f"{statistics.median(map(_rate, runs)):,.0f}",
            _range(_relative(rounds, name, evidence.baseline)),
            f"{max(run.peak_memory_mb for run in runs):,.0f}",
        ]
        for name, runs in found.items()
    ]
    device = next(iter(found.values()))[0].environment.get("device", "the device")
    caption = (
        f"The first {evidence.study.plan['speed']['updates']} updates of the training, one system "
        f"after the other on {device}, in {plural(len(rounds), 'round')}: median over the last two "
        f"thirds of the updates and over the rounds, and relative to {evidence.baseline} in the "
        "same round, the median and the range."
    )
    header = ["system", "target tokens/s", "relative", "memory, MB"]
    return Section(title, [Table(caption, header, rows)])


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
