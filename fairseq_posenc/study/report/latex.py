"""A table of a report as LaTeX, with the rules of booktabs."""

import re

from fairseq_posenc.study.report.document import Table

#: Characters that LaTeX reads as commands, or may not have in its font.
_WRITTEN = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "<": "$<$", ">": "$>$",
    "±": r"$\pm$", "−": "$-$", "–": "--", "∞": r"$\infty$",
    "↑": r"$\uparrow$", "↓": r"$\downarrow$",
}  # fmt: skip


def to_latex(table: Table) -> str:
    """The table as a floating ``table``, for a document that loads the package booktabs.

    Args:
        table: a table, whose caption becomes the caption; lines of a cell are joined by commas.
    """
    left = {0, *table.text}
    columns = "".join("l" if place in left else "r" for place in range(len(table.header)))
    strong = set(table.strong)
    body = [
        " & ".join(
            rf"\textbf{{{_cell(cell)}}}" if (row, column) in strong else _cell(cell)
            for column, cell in enumerate(cells)
        )
        for row, cells in enumerate(table.rows)
    ]
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{escape(table.caption)}}}",
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        " & ".join(map(_cell, table.header)) + r" \\",
        r"\midrule",
        *(f"{row} \\\\" for row in body),
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return escape(", ".join(text.split("\n")))


def escape(text: str) -> str:
    r"""Plain text as LaTeX shows it.

    >>> escape("50 % of a_b ± 1")
    '50 \\% of a\\_b $\\pm$ 1'
    """
    return re.sub("|".join(map(re.escape, _WRITTEN)), lambda match: _WRITTEN[match.group()], text)
