"""Numbers and lists as text, and tables in Markdown and LaTeX."""

import math
import re
from typing import Any, Collection, List, NamedTuple, Optional, Sequence, Tuple

_LATEX = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "<": "$<$", ">": "$>$", "±": r"$\pm$", "−": "$-$", "–": "--", "∞": r"$\infty$",
    "↑": r"$\uparrow$", "↓": r"$\downarrow$",
}  # fmt: skip


def number(value: Optional[float], like: Optional[float] = None) -> str:
    """Format a number with four significant digits, but no more than four decimals.

    Args:
        like: the number whose size decides the decimals; by default *value*.
    """
    if value is None or math.isnan(value):
        return "–"
    if not math.isfinite(value):
        return "∞"
    size = abs(value if like is None else like)
    digits = 4 if size < 1 else max(0, 3 - int(math.log10(size)))
    return f"{value:.{digits}f}".replace("-", "−")


def spread(values: Sequence[float]) -> str:
    """Mean ± standard deviation over the seeds (n − 1)."""
    if not len(values):
        return "–"
    mean = math.fsum(values) / len(values)
    if len(values) < 2 or not math.isfinite(mean):
        return number(mean)
    deviation = math.sqrt(sum((one - mean) ** 2 for one in values) / (len(values) - 1))
    return f"{number(mean)} ± {number(deviation, mean)}"


def ends(low: float, high: float, like: float) -> str:
    """The ends of an interval, with as many decimals as *like*."""
    return f"({number(low, like)}{' to ' if low < 0 else '–'}{number(high, like)})"


def p_value(p: Optional[float]) -> str:
    """Format a p-value for a table."""
    if p is None:
        return "–"
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def names(items: Sequence[Any]) -> str:
    """Join items as in a sentence: ``a, b and c``."""
    words = list(map(str, items))
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def plural(count: int, noun: str) -> str:
    """A number with its noun, in the singular or plural."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def capitalised(text: str) -> str:
    """The text with a capital first letter, unless its first word already has capitals."""
    return text[:1].upper() + text[1:] if text.partition(" ")[0].islower() else text


class Table(NamedTuple):
    """A table, whose first column names its rows; a cell may have several lines."""

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    text: Collection[int] = ()  # text columns, aligned to the left, besides the first column
    code: Collection[int] = ()  # columns of code
    strong: Collection[Tuple[int, int]] = ()  # (row, column) of cells to emphasise

    def markdown(self) -> str:
        """The caption and the table."""
        left = {0, *self.text, *self.code}
        rule = [":---" if column in left else "---:" for column in range(len(self.header))]
        lines = [list(map(markdown, self.header)), rule]
        for row, cells in enumerate(self.rows):
            shown = [_code(c) if i in self.code else markdown(c) for i, c in enumerate(cells)]
            lines.append(
                [f"**{c}**" if (row, i) in self.strong else c for i, c in enumerate(shown)]
            )
        table = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
        return f"{markdown(self.caption)}\n\n{table}"

    def latex(self) -> str:
        """A LaTeX ``table`` for a document that loads the package booktabs."""
        left = {0, *self.text}
        columns = "".join("l" if place in left else "r" for place in range(len(self.header)))
        body: List[str] = []
        for row, cells in enumerate(self.rows):
            shown = [latex(", ".join(cell.split("\n"))) for cell in cells]
            strong = [
                rf"\textbf{{{c}}}" if (row, i) in self.strong else c for i, c in enumerate(shown)
            ]
            body.append(" & ".join(strong) + r" \\")
        head = " & ".join(map(latex, self.header)) + r" \\"
        return "\n".join(
            [r"\begin{table}", r"\centering", rf"\caption{{{latex(self.caption)}}}"]
            + [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", head, r"\midrule", *body]
            + [r"\bottomrule", r"\end{tabular}", r"\end{table}", ""]
        )


def markdown(text: str) -> str:
    """Escape plain text for Markdown, including table cells."""
    escaped = re.sub(r"([\\`*_\[\]|~])", r"\\\1", text)
    escaped = escaped.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return escaped.replace("\n", "<br>")


def latex(text: str) -> str:
    r"""Escape plain text for LaTeX."""
    return re.sub("|".join(map(re.escape, _LATEX)), lambda found: _LATEX[found.group()], text)


def _code(text: str) -> str:
    return f"`{text}`".replace("|", "\\|").replace("\n", " ") if text else ""


def listing(title: str, text: str) -> str:
    """A collapsed block with a title, for text with line breaks such as commands."""
    head = f'<details markdown="1">\n<summary>{markdown(title)}</summary>'
    return f"{head}\n\n````text\n{text}\n````\n\n</details>"
