"""A map of numbers: a row for each task, a column for each system, and the number in the cell."""

from typing import Sequence

import numpy as np

from fairseq_posenc.analysis.figures import import_pyplot
from fairseq_posenc.study.report.document import Figure
from fairseq_posenc.study.report.figures import to_svg

COLORS = "viridis"  # steps even in lightness, for readers without colour, too
_DARK = 0.55  # part of the scale below which a cell is dark, and its number white
_CELL = (0.36, 0.3)  # inches


def heat_map(
    name: str,
    caption: str,
    rows: Sequence[str],
    columns: Sequence[str],
    values: np.ndarray,
    texts: Sequence[Sequence[str]],
    apart: int = 0,
) -> Figure:
    """Draw a map, in the colours of paper.

    Args:
        rows: names of the rows, from the top.
        columns: names of the columns.
        values: (rows, columns), at least 0.
        texts: what stands in each cell.
        apart: so many rows at the bottom are set off from the others.
    """
    pyplot = import_pyplot("study --report")
    size = (1.9 + _CELL[0] * len(columns), 1.3 + _CELL[1] * len(rows))
    figure, axes = pyplot.subplots(figsize=size, constrained_layout=True)
    most = max(float(values.max()), 1e-9)
    # cells are shapes, which stay sharp at every size
    axes.pcolormesh(values, cmap=COLORS, vmin=0, vmax=most, edgecolors="white", linewidth=1)
    for row, line in enumerate(texts):
        for column, text in enumerate(line):
            color = "white" if values[row, column] < _DARK * most else "black"
            axes.text(
                column + 0.5, row + 0.5, text, color=color, ha="center", va="center", fontsize=7.5
            )
    axes.set_xticks(np.arange(len(columns)) + 0.5)
    axes.set_xticklabels(columns, rotation=55, ha="left", rotation_mode="anchor")
    axes.set_yticks(np.arange(len(rows)) + 0.5)
    axes.set_yticklabels(rows)
    axes.invert_yaxis()
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.grid(visible=False)
    for spine in axes.spines.values():
        spine.set_visible(False)
    if apart:
        axes.axhline(len(rows) - apart, color="white", linewidth=4)
    return Figure(name, caption, to_svg(figure), themed=False)
