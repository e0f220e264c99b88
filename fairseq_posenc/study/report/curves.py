"""Drawings: learning curves, extrapolation, and what each encoding learned about positions."""

import tempfile
from pathlib import Path
from typing import Any, Dict, List, Mapping

from fairseq_posenc.analysis import positions_figure
from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.study.report.document import Details, Figure, Points, Prose, Section
from fairseq_posenc.study.report.evidence import Evidence
from fairseq_posenc.study.report.figures import Curve, curve, small_multiples
from fairseq_posenc.study.report.words import names, table_of_means
from fairseq_posenc.study.results import Run

#: Positions drawn, fewer if the model has fewer.
LENGTH = 64


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
    values = {
        name: [[run[length] for run in runs if length in run] for length in lengths]
        for name, runs in series.items()
    }
    caption = "Perplexity by the length of the context, mean ± standard deviation over the seeds."
    header = [f"{length:,} tokens" for length in lengths]
    return Section("Extrapolation", [*parts, table_of_means(caption, header, values)])


def _has_checkpoint(run: Run) -> bool:
    return bool(run.checkpoint) and (run.folder / run.checkpoint).is_file()


def positions_section(evidence: Evidence) -> Section:
    """A figure for each system of which a checkpoint is there that has something to draw."""
    parts: List[Any] = []
    without: List[str] = []
    failed: List[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for index, name in enumerate(evidence.systems):
            kept = (run for run in evidence.study.of(name) if _has_checkpoint(run))
            run = next(kept, None)
            if run is None:
                continue
            checkpoint = run.folder / run.checkpoint
            output = Path(folder) / f"{index}.svg"
            try:
                positions_figure.plot(str(checkpoint), output, None, LENGTH)
            except positions_figure.NothingToDraw:
                without.append(name)
                continue
            except UsageError as error:
                reason = str(error).rpartition(f"{checkpoint}: ")[2]
                failed.append(f"{name}: {reason}")
                continue
            caption = f"{name}, seed {run.seed}: what it has learned of positions."
            svg = output.read_text(encoding="utf-8")
            figure = Figure(f"positions-{index}", caption, svg, themed=False)
            parts.append(Details(name, [figure]))
    if parts:
        told = (
            "After training: the parts of the attention logits that depend on positions alone, the "
            "decay of rotary logits with distance, and how similar the vectors of a learned table "
            "are."
        )
        if without:
            told += f" Not drawn for {names(without)}."
        parts.insert(0, Prose(told))
        if failed:
            parts.append(Points(failed))
    return Section("Positions learned", parts)
