"""Times at several lengths: time per token, exponents, and a figure."""

import math
import statistics
from pathlib import Path
from typing import Any, Dict, List, Tuple

from fairseq_posenc.analysis.figures import curve_style, import_pyplot, save_figure
from fairseq_posenc.basics.packages import import_extra

Row = Dict[str, Any]
Curve = Tuple[List[int], List[float]]
LEAST_ROUNDS = 3
TITLES = {"attention": "bidirectional", "causal-attention": "causal"}  # by job


def rounds_at(repeat: int, length: int, shortest: int) -> int:
    """The number of rounds at one length: fewer at longer lengths, but at least three.

    Args:
        repeat: rounds at the shortest length.
        length: in tokens.
        shortest: in tokens.
    """
    return max(repeat * shortest // length, min(repeat, LEAST_ROUNDS))


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


def table(rows: List[Row], fitted: List[Row]) -> str:
    """Times and exponents as a plain-text table."""
    width = max(len(row["model"]) for row in rows)
    lines = [
        f"{'job':<18}{'tokens':<8}{'clock':<11}{'model':<{width}}"
        f"{'ms':>10}{'ratio':>8}  quartiles    {'µs/token':>10}{'MiB':>8}"
    ]
    for row in rows:
        memory = "-" if row["peak_mib"] is None else format(row["peak_mib"], ".0f")
        lines.append(
            "{job:<18}{tokens:<8}{clock:<11}{model:<{width}}{median_ms:>10.1f}{ratio:>8.3f}"
            "  {ratio_q1:.3f}-{ratio_q3:.3f}{token_us:>12.2f}{memory:>8}".format(
                **row, width=width, memory=memory
            )
        )
    lines += ["", f"{'job':<18}{'clock':<11}{'model':<{width}}{'exponent':>10}  tokens"]
    for row in fitted:
        lines.append(
            "{job:<18}{clock:<11}{model:<{width}}{exponent:>10.3f}  {shortest} to {longest}".format(
                **row, width=width
            )
        )
    return "\n".join(lines if fitted else lines[:-2])


def draw(rows: List[Row], clock: str, output: Path) -> None:
    """Plot time per token, and memory if measured, against length, with one panel per job.

    Args:
        rows: as :func:`per_token` returns them.
        clock: the clock whose times are drawn.
        output: the figure.
    """
    pyplot = import_pyplot("--plot")
    ticker = import_extra("matplotlib.ticker", "--plot")

    shown = [row for row in rows if row["clock"] == clock]
    jobs = list(dict.fromkeys(row["job"] for row in shown))
    values = {"token_us": f"µs per token, forward + backward ({clock})"}
    if shown[0]["peak_mib"] is not None:
        values["peak_mib"] = "peak memory (MiB)"
    size: Dict[str, Any] = {"figsize": (5 * len(jobs), 3.8 * len(values)), "squeeze": False}
    figure, panels = pyplot.subplots(
        len(values), len(jobs), sharex=True, sharey="row", constrained_layout=True, **size
    )
    models = list(dict.fromkeys(row["model"] for row in shown))
    for line, (value, label) in zip(panels, values.items()):
        found = curves(shown, value)
        line[0].set_ylabel(label)
        for axes, job in zip(line, jobs):
            for number, model in enumerate(models):
                axes.plot(*found[job, clock, model], **curve_style(number), label=model)
            axes.set_xscale("log", base=2)
            axes.set_yscale("log")
            axes.set_xticks(found[job, clock, models[0]][0])
            axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
            for axis in (axes.xaxis, axes.yaxis):
                axis.set_major_formatter(ticker.FormatStrFormatter("%g"))
                axis.set_minor_locator(ticker.NullLocator())
    for axes, job in zip(panels[0], jobs):
        axes.set_title(TITLES[job])
    for axes in panels[-1]:
        axes.set_xlabel("length (tokens)")
    panels[0][0].legend()
    save_figure(figure, output, flag="--plot")
