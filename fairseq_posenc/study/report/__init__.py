"""The report of a study: one HTML file, the same as Markdown with figures, and a table of runs."""

import html
import re
from pathlib import Path
from typing import Any, List, Tuple

from fairseq_posenc.basics.files import FilePath
from fairseq_posenc.basics.lines import write_text
from fairseq_posenc.basics.packages import import_extra
from fairseq_posenc.study.report.curves import (
    extrapolation_section,
    learning_section,
    length_section,
    positions_section,
)
from fairseq_posenc.study.report.document import Figure, Report, verdict
from fairseq_posenc.study.report.figures import STYLE_SHEET, on_any_page, themed
from fairseq_posenc.study.report.latex import to_latex
from fairseq_posenc.study.report.lengths import lengths_section
from fairseq_posenc.study.report.measured import cost_section, speed_section
from fairseq_posenc.study.report.overview import (
    absent_section,
    reproduction_section,
    systems_section,
    warnings,
)
from fairseq_posenc.study.report.scores import overall_table, results_section
from fairseq_posenc.study.report.search import search_section
from fairseq_posenc.study.report.warm_starts import warm_start_section
from fairseq_posenc.study.results import Study, load_results, to_csv

#: The folder of the report in the folder of the study.
REPORT = "report"
FIGURES = "figures"  # in that folder, beside the Markdown
_HERE = Path(__file__).resolve().parent
#: The sections of a report, in order; those without parts are left out.
SECTIONS = (
    systems_section,
    search_section,
    results_section,
    lengths_section,
    warm_start_section,
    learning_section,
    length_section,
    extrapolation_section,
    cost_section,
    speed_section,
    positions_section,
    absent_section,
    reproduction_section,
)


def build(study: Study) -> Report:
    """All sections of the report."""
    summary = warnings(study)
    summary += [
        verdict(study.comparisons[measure.name], measure, study.baseline)
        for measure in study.scored
    ]
    plan = study.plan
    title = plan.get("title") or plan.get("name") or "Comparison of position encodings"
    sections = [section(study) for section in SECTIONS]
    return Report(str(title), summary or ["No run has finished yet."], sections)


def write_report(study_folder: FilePath) -> Tuple[Path, Path]:
    """Write the report of a study into its folder; an earlier one is replaced.

    Returns:
        the HTML file, and the Markdown file, which has its figures and ``results.csv`` beside it.

    Raises:
        UsageError: the study cannot be read, a file cannot be written, or a package is missing.
    """
    study = load_results(study_folder)
    folder = Path(study_folder) / REPORT
    figures = folder / FIGURES
    report = build(study)
    drawn = {
        f"{figure.name}.svg": on_any_page(figure.svg) if figure.themed else figure.svg
        for figure in figures_in(report)
    }
    latex = folder / "results.tex"
    for old in (*figures.glob("*.svg"), *folder.glob(latex.name)):
        if old.name not in drawn:
            old.unlink()
    for name, svg in drawn.items():
        _write(figures / name, svg)
    files = folder / "report.html", folder / "report.md"
    _write(files[0], to_html(report))
    _write(files[1], to_markdown(report))
    _write(folder / "results.csv", to_csv(study))
    if study.scored:
        _write(latex, to_latex(overall_table(study, intervals=False)))
    return files


def _write(path: Path, text: str) -> None:
    with write_text(path) as stream:
        stream.write(text)


def figures_in(report: Report) -> List[Figure]:
    """All figures of a report, in order."""
    found: List[Figure] = []

    def visit(parts: Any) -> None:
        for part in parts:
            if part.kind == "figure":
                found.append(part)
            elif part.kind == "details":
                visit(part.parts)

    for section in report.sections:
        visit(section.parts)
    return found


def to_html(report: Report) -> str:
    """The report as one file that needs no other and no network."""
    environment = _environment(autoescape=True)
    safe = import_extra("markupsafe", "study --report").Markup

    def drawing(figure: Figure, narrow: bool) -> Any:
        svg = (figure.narrow if narrow else None) or figure.svg
        prefix = f"{figure.name}-{'n' if narrow else 'w'}"
        return safe(themed(svg, prefix, html.escape(figure.caption, quote=True)))

    def card(figure: Figure) -> Any:
        svg = figure.svg[figure.svg.index("<svg") :]
        return safe(re.sub(r'(id=")|(url\(#)|(href="#)', rf"\g<0>{figure.name}-", svg))

    style = safe(STYLE_SHEET.read_text(encoding="utf-8"))
    template = environment.get_template("report.html.jinja")
    return template.render(report=report, style=style, drawing=drawing, card=card)


def to_markdown(report: Report) -> str:
    """The report as Markdown; its figures are expected in the folder :data:`FIGURES` beside it."""
    environment = _environment(autoescape=False)
    environment.filters.update(md=escape_markdown, code=inline_code, fence=fence)
    text = environment.get_template("report.md.jinja").render(report=report, figures=FIGURES)
    return re.sub(r"\n{3,}", "\n\n", re.sub(r" +\n", "\n", text)).strip() + "\n"


def _environment(autoescape: bool) -> Any:
    jinja = import_extra("jinja2", "study --report")
    return jinja.Environment(
        loader=jinja.FileSystemLoader(str(_HERE)),
        autoescape=autoescape,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja.StrictUndefined,
    )


def escape_markdown(text: str) -> str:
    """Plain text that Markdown shows as it is, also in the cell of a table.

    >>> escape_markdown("a|b *c* <d>\\ne")
    'a\\\\|b \\\\*c\\\\* &lt;d&gt;<br>e'
    """
    escaped = re.sub(r"([\\`*_\[\]|~])", r"\\\1", text)
    escaped = escaped.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"^([#+-]|\d+\.)(?=\s)", r"\\\1", escaped).replace("\n", "<br>")


def inline_code(text: str) -> str:
    """Code in the cell of a table; nothing for nothing."""
    if not text:
        return ""
    longest = max(map(len, re.findall("`+", text)), default=0)
    text = text.replace("\n", " ")
    ticks, space = "`" * (longest + 1), " " if longest else ""
    return f"{ticks}{space}{text}{space}{ticks}".replace("|", "\\|")


def fence(text: str) -> str:
    """A code block."""
    longest = max(map(len, re.findall("`{3,}", text)), default=2)
    ticks = "`" * (longest + 1)
    return f"{ticks}text\n{text}\n{ticks}"
