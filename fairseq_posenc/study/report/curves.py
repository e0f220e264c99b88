"""Learning curves and extrapolation: panels with bands over the seeds."""

from typing import Any, Dict, List, Mapping

from fairseq_posenc.study.report.document import Section, Table
from fairseq_posenc.study.report.evidence import Evidence
from fairseq_posenc.study.report.figures import Curve, curve, small_multiples
from fairseq_posenc.study.report.words import spread
from fairseq_posenc.study.statistics import summarise


def panels(series: Mapping[str, List[Dict[int, float]]]) -> Dict[str, Curve]:
    """Curves of the systems that have one.

    Args:
        series: by system, for each seed: values by position.
    """
    found = {name: curve([run for run in runs if run]) for name, runs in series.items()}
    return {name: line for name, line in found.items() if line is not None}


def learning_section(evidence: Evidence) -> Section:
    """The loss of each system during training."""
    for field, subset in (("valid_loss", "validation"), ("train_loss", "training")):
        series = {
            name: [
                {p.update: getattr(p, field) for p in run.curve if getattr(p, field) is not None}
                for run in evidence.study.of(name)
            ]
            for name in evidence.systems
        }
        lines = panels(series)
        if lines:
            early = " Values of the first quarter may lie above the edge."
            caption = (
                f"{subset.capitalize()} loss (bits per token): mean and range over the seeds (blue "
                f"line and band), the baseline {evidence.baseline} (dashed) and all others (thin "
                f"lines).{early}"
            )
            labels = ("updates", f"{subset} loss (bits per token)")
            figure = small_multiples(
                "learning", caption, lines, evidence.baseline, labels, settled=0.25
            )
            return Section("Learning curves", [figure])
    return Section("Learning curves", [])


def extrapolation_section(evidence: Evidence) -> Section:
    """Perplexity of contexts of several lengths."""
    series = {
        name: [run.extrapolation for run in evidence.study.of(name) if run.extrapolation]
        for name in evidence.systems
    }
    series = {name: runs for name, runs in series.items() if runs}
    lengths = sorted({length for runs in series.values() for run in runs for length in run})
    if not lengths:
        return Section("Extrapolation", [])
    parts: List[Any] = []
    lines = panels(series)
    if lines:
        caption = (
            "Perplexity by the length of the context: mean and range over the seeds (blue line and "
            f"band), the baseline {evidence.baseline} (dashed) and all others (thin lines); both "
            "axes are logarithmic, and perplexities far above all others are beyond the edge."
        )
        labels = ("length of the context (tokens)", "perplexity")
        scales = ("log", "log")
        parts.append(
            small_multiples("extrapolation", caption, lines, evidence.baseline, labels, scales)
        )
    rows = []
    for name, runs in series.items():
        values = [[run[length] for run in runs if length in run] for length in lengths]
        rows.append([name, *(spread(summarise(found) if found else None) for found in values)])
    header = ["system", *(f"{length:,} tokens" for length in lengths)]
    caption = "Perplexity by the length of the context, mean ± standard deviation over the seeds."
    return Section("Extrapolation", [*parts, Table(caption, header, rows)])
