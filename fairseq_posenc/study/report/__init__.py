"""The report of a study: one HTML file, and the same as Markdown with figures."""

from pathlib import Path
from typing import Tuple

from fairseq_posenc.basics.files import FilePath, replace_file
from fairseq_posenc.study.report.curves import (
    extrapolation_section,
    learning_section,
    length_section,
    positions_section,
)
from fairseq_posenc.study.report.document import Report, verdict
from fairseq_posenc.study.report.evidence import Evidence, gather
from fairseq_posenc.study.report.measured import cost_section, speed_section
from fairseq_posenc.study.report.overview import (
    absent_section,
    reproduction_section,
    systems_section,
    warnings,
)
from fairseq_posenc.study.report.render import FIGURES, figures_in, to_html, to_markdown
from fairseq_posenc.study.report.scores import results_section
from fairseq_posenc.study.results import load_results

#: The folder of the report in the folder of the study.
REPORT = "report"
#: The sections of a report, in order; those without parts are left out.
SECTIONS = (
    systems_section,
    results_section,
    learning_section,
    length_section,
    extrapolation_section,
    cost_section,
    speed_section,
    positions_section,
    absent_section,
    reproduction_section,
)


def build(evidence: Evidence) -> Report:
    """All sections of the report.

    Args:
        evidence: a study with its statistics.
    """
    summary = warnings(evidence)
    summary += [
        verdict(evidence.comparisons[measure.name], measure, evidence.baseline)
        for measure in evidence.measures
    ]
    plan = evidence.study.plan
    title = plan.get("title") or plan.get("name") or "Comparison of position encodings"
    sections = [section(evidence) for section in SECTIONS]
    return Report(str(title), summary or ["No run has finished yet."], sections)


def write_report(study_folder: FilePath) -> Tuple[Path, Path]:
    """Write the report of a study into its folder; an earlier one is replaced.

    Args:
        study_folder: the folder of the study.

    Returns:
        the HTML file, and the Markdown file, which has its figures beside it.

    Raises:
        UsageError: the study cannot be read, a file cannot be written, or a package is missing.
    """
    study = load_results(study_folder)
    folder = Path(study_folder) / REPORT
    figures = folder / FIGURES
    figures.mkdir(parents=True, exist_ok=True)
    report = build(gather(study))
    drawn = {f"{figure.name}.svg": figure.svg for figure in figures_in(report)}
    for old in figures.glob("*.svg"):
        if old.name not in drawn:
            old.unlink()
    for name, svg in drawn.items():
        _write(figures / name, svg)
    files = folder / "report.html", folder / "report.md"
    _write(files[0], to_html(report))
    _write(files[1], to_markdown(report))
    return files


def _write(path: Path, text: str) -> None:
    with replace_file(path) as partial:
        partial.write_text(text, encoding="utf-8")
