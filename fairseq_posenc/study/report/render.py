"""A report as one HTML file and as Markdown with its figures beside it."""

import html
import re
from pathlib import Path
from typing import Any, List

from fairseq_posenc.basics.packages import import_extra
from fairseq_posenc.study.report.document import Figure, Report
from fairseq_posenc.study.report.figures import themed

FIGURES = "figures"
_HERE = Path(__file__).resolve().parent


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
    """The report as one file that needs no other and no network.

    Args:
        report: the report.
    """
    environment = _environment(autoescape=True)
    safe = import_extra("markupsafe", "study --report").Markup

    def drawing(figure: Figure, narrow: bool) -> Any:
        svg = (figure.narrow if narrow else None) or figure.svg
        prefix = f"{figure.name}-{'n' if narrow else 'w'}"
        return safe(themed(svg, prefix, html.escape(figure.caption, quote=True)))

    def card(figure: Figure) -> Any:
        svg = figure.svg[figure.svg.index("<svg") :]
        return safe(re.sub(r'(id=")|(url\(#)|(href="#)', rf"\g<0>{figure.name}-", svg))

    style = safe((_HERE / "style.css").read_text(encoding="utf-8"))
    template = environment.get_template("report.html.jinja")
    return template.render(report=report, style=style, drawing=drawing, card=card)


def to_markdown(report: Report) -> str:
    """The report as Markdown; its figures are expected in the folder :data:`FIGURES` beside it.

    Args:
        report: the report.
    """
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
