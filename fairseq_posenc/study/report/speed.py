"""Speed and memory of the training, measured while nothing else was running."""

from fairseq_posenc.study.report.document import Section, Table
from fairseq_posenc.study.report.evidence import Evidence


def speed_section(evidence: Evidence) -> Section:
    """Tokens per second, relative to the baseline, and memory; empty without measurements."""
    found = {
        name: evidence.study.speed[name]
        for name in evidence.study.systems
        if name in evidence.study.speed
    }
    if not found:
        return Section("Speed, alone on the device", [])
    rates = {name: run.scores["tokens_per_second"] for name, run in found.items()}
    base = rates.get(evidence.baseline)
    rows = [
        [
            name,
            f"{rate:,.0f}",
            f"{rate / base:.2f}" if base else "–",
            f"{found[name].peak_memory_mb:,.0f}",
        ]
        for name, rate in rates.items()
    ]
    device = next(iter(found.values())).environment.get("device", "the device")
    caption = (
        f"The first {evidence.study.plan['speed']['updates']} updates of the training, one system "
        f"after the other on {device}: median over the last two thirds. Relative to "
        f"{evidence.baseline}."
    )
    header = ["system", "target tokens/s", "relative", "memory, MB"]
    return Section("Speed, alone on the device", [Table(caption, header, rows)])
