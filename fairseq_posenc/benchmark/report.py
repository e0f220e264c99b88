"""Tables of figures, the exponents of times by length, and a figure of them."""

import math
import statistics
from pathlib import Path
from typing import Any, Dict, List, Sequence, Tuple

from fairseq_posenc.analysis.figures import curve_style, import_pyplot, length_axes, save_figure

Row = Dict[str, Any]
Column = Tuple[str, str, str]  # title, name of the figure, format
Curve = Tuple[List[int], List[float]]

TIMES: Sequence[Column] = (
    *(("job", "job", ""), ("tokens", "tokens", ""), ("clock", "clock", ""), ("model", "model", "")),
    *(("ms", "median_ms", ".1f"), ("ratio", "ratio", ".3f")),
    *(("quartiles", "ratio_q1", ".3f"), ("", "ratio_q3", ".3f")),
    *(("µs/token", "token_us", ".2f"), ("MiB", "peak_mib", ".0f")),
    *(("GFLOP", "gflop", ".4g"), ("ratio", "gflop_ratio", ".3f")),
)
EXPONENTS: Sequence[Column] = (
    *(("job", "job", ""), ("clock", "clock", ""), ("model", "model", "")),
    *(("exponent", "exponent", ".3f"), ("from", "shortest", ""), ("to", "longest", "")),
)
TITLES = {"attention": "bidirectional", "causal-attention": "causal"}  # titles of panels, by job


def table(rows: Sequence[Row], columns: Sequence[Column]) -> str:
    """Rows as plain text; a figure that no row has is left out.

    >>> rows = [{"a": "x", "b": 1.0, "c": None}, {"a": "long", "b": 12.0, "c": None}]
    >>> print(table(rows, [("name", "a", ""), ("ms", "b", ".1f"), ("MiB", "c", ".0f")]))
    name    ms
    x      1.0
    long  12.0
    """
    columns = [c for c in columns if any(row.get(c[1]) is not None for row in rows)]
    aligned = []
    for title, name, form in columns:
        values = [row[name] for row in rows]
        cells = [title, *("-" if value is None else format(value, form) for value in values)]
        width = max(map(len, cells))
        text = any(isinstance(value, str) for value in values)
        aligned.append([cell.ljust(width) if text else cell.rjust(width) for cell in cells])
    return "\n".join("  ".join(cells).rstrip() for cells in zip(*aligned))


def per_token(rows: List[Row], batch: int) -> List[Row]:
    """The rows with microseconds per token added, for batches of *batch* sentences."""
    return [
        dict(row, token_us=1e3 * row["median_ms"] / (batch * int(row["tokens"]))) for row in rows
    ]


def curves(rows: List[Row], value: str) -> Dict[Tuple[str, str, str], Curve]:
    """Lengths and the figure called *value* at each, by job, clock and model."""
    found: Dict[Tuple[str, str, str], Curve] = {}
    for row in rows:
        lengths, values = found.setdefault((row["job"], row["clock"], row["model"]), ([], []))
        lengths.append(int(row["tokens"]))
        values.append(row[value])
    return found


def slope(x: List[float], y: List[float]) -> float:
    """Slope of the least-squares line through the points (x, y)."""
    middle, height = statistics.mean(x), statistics.mean(y)
    products = sum((a - middle) * (b - height) for a, b in zip(x, y))
    return products / sum((a - middle) ** 2 for a in x)


def exponents(rows: List[Row]) -> List[Row]:
    """Fit time = constant · length^exponent by least squares in logarithms.

    Returns:
        one row per job, clock and model; none if there is only one length.
    """
    fitted = []
    for (job, clock, model), (lengths, times) in curves(rows, "median_ms").items():
        if len(set(lengths)) > 1:  # an entry may be given twice
            exponent = slope([math.log(n) for n in lengths], [math.log(t) for t in times])
            span = {"shortest": min(lengths), "longest": max(lengths)}
            fitted.append(dict(job=job, clock=clock, model=model, exponent=exponent, **span))
    return fitted


def draw(rows: List[Row], clock: str, output: Path) -> None:
    """Plot time per token, and memory if measured, against length, with one panel per job.

    Args:
        rows: as :func:`per_token` returns them.
        clock: the clock whose times are drawn.
        output: the figure.
    """
    pyplot = import_pyplot("--plot")
    shown = [row for row in rows if row["clock"] == clock]
    jobs = list(dict.fromkeys(row["job"] for row in shown))
    models = list(dict.fromkeys(row["model"] for row in shown))
    values = {"token_us": f"µs per token, forward + backward ({clock})"}
    if shown[0]["peak_mib"] is not None:
        values["peak_mib"] = "peak memory (MiB)"
    size: Dict[str, Any] = {"figsize": (5 * len(jobs), 3.8 * len(values)), "squeeze": False}
    figure, panels = pyplot.subplots(
        len(values), len(jobs), sharex=True, sharey="row", constrained_layout=True, **size
    )
    for line, (value, label) in zip(panels, values.items()):
        found = curves(shown, value)
        line[0].set_ylabel(label)
        for axes, job in zip(line, jobs):
            for number, model in enumerate(models):
                axes.plot(*found[job, clock, model], **curve_style(number), label=model)
            length_axes(axes, found[job, clock, models[0]][0], (1, 2, 5))
    for axes, job in zip(panels[0], jobs):
        axes.set_title(TITLES[job])
    for axes in panels[-1]:
        axes.set_xlabel("length (tokens)")
    panels[0][0].legend()
    save_figure(figure, output, flag="--plot")
