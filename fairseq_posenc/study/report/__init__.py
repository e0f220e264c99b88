"""The report of a study: one HTML file, and the same as Markdown with figures."""

from pathlib import Path
from typing import Tuple

from fairseq_posenc.basics.files import FilePath, replace_file
from fairseq_posenc.study.report.cost import cost_section
from fairseq_posenc.study.report.curves import extrapolation_section, learning_section
from fairseq_posenc.study.report.document import Report
from fairseq_posenc.study.report.evidence import Evidence, gather
from fairseq_posenc.study.report.memory import Memory
from fairseq_posenc.study.report.overview import absent_section, systems_section, warnings
from fairseq_posenc.study.report.positions import positions_section
from fairseq_posenc.study.report.render import FIGURES, figures_in, to_html, to_markdown
from fairseq_posenc.study.report.reproduction import reproduction_section
from fairseq_posenc.study.report.scores import results_section
from fairseq_posenc.study.report.speed import speed_section
from fairseq_posenc.study.report.translations import (
    length_section,
    read_translations,
    samples_section,
)
from fairseq_posenc.study.report.words import verdict
from fairseq_posenc.study.results import load_results

#: The folder of the report in that of the study.
REPORT = "report"
#: What need not be computed again for the next one.
MEMORY = ".report.json"


def build(evidence: Evidence) -> Report:
    """All sections of the report.

    Args:
        evidence: a study with its statistics.
    """
    translations = read_translations(evidence)
    summary = warnings(evidence)
    summary += [
        verdict(evidence.comparisons[measure.name], measure, evidence.baseline)
        for measure in evidence.measures
    ]
    plan = evidence.study.plan
    title = plan.get("title") or plan.get("name") or "Comparison of position encodings"
    return Report(
        str(title),
        summary or ["No run has finished yet."],
        [
            systems_section(evidence),
            results_section(evidence),
            learning_section(evidence),
            length_section(evidence, translations),
            extrapolation_section(evidence),
            cost_section(evidence),
            speed_section(evidence),
            positions_section(evidence),
            samples_section(evidence, translations),
            absent_section(evidence),
            reproduction_section(evidence),
        ],
    )


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
    memory = Memory(Path(study_folder) / MEMORY)
    report = build(gather(study, memory))
    memory.save()
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
