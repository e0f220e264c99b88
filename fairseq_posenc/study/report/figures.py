"""Drawing for reports: small multiples and dot plots, and SVG that follows the colours of a page.

No figure tells systems apart by colour.  Each panel or row shows one system in front of all others,
so that the number of systems does not matter.
"""

import io
import math
import re
from pathlib import Path
from typing import Any, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from fairseq_posenc.analysis.figures import COLORS, import_pyplot
from fairseq_posenc.analysis.training import together
from fairseq_posenc.basics.packages import import_extra
from fairseq_posenc.study.report.document import Figure
from fairseq_posenc.study.statistics import Comparison, Summary

#: Widths in inches; at 390 pixels of width, a narrow figure's text is about 10 pixels high.
NARROW, WIDE = 4.1, 8.2
#: Colours of the one system of a panel, of the others, and of the baseline.
FRONT, BACK, BASELINE = COLORS[0], "#999999", COLORS[2]
INK, PAPER = "#000000", "#ffffff"
#: Variables of the style sheet that replace colours in figures inside a page.
THEME = {
    FRONT: "var(--front)", BACK: "var(--back)", BASELINE: "var(--baseline)",
    "#b0b0b0": "var(--grid)", INK: "currentColor",
}  # fmt: skip
STYLE_SHEET = Path(__file__).with_name("style.css")


def to_svg(figure: Any) -> str:
    """A figure of matplotlib as the text of an SVG file on white; the figure is closed."""
    file = io.StringIO()
    figure.savefig(file, format="svg", metadata={"Date": None})
    import_pyplot("study --report").close(figure)
    return file.getvalue()


def themed(svg: str, prefix: str, label: str) -> str:
    """An SVG drawing as an element of a page, in the colours and the type of that page.

    Args:
        svg: from :func:`to_svg`.
        prefix: begins the identifiers of the drawing, and is unique on the page.
        label: a description for readers who cannot see the drawing, without markup.
    """
    element = svg[svg.index("<svg") :]
    element = re.sub(r"<metadata>.*?</metadata>", "", element, flags=re.DOTALL)
    # the figure and its axes have a background
    element = re.sub(r"fill: #ffffff[^\"]*", "fill: none", element)
    element = re.sub(r'(id=")|(url\(#)|(href="#)', rf"\g<0>{prefix}-", element)
    element = re.sub(r"font: (?:\w+ )*?([\d.]+)px [^;\"]*", r"font-size: \1px", element)
    for color, variable in THEME.items():
        element = re.sub(color, variable, element, flags=re.IGNORECASE)
    head, rest = element.split(">", 1)
    head = re.sub(r' (?:width|height|version)="[^"]*"', "", head)
    return f'{head} role="img" aria-label="{label}" fill="currentColor">{rest}'


def on_any_page(svg: str) -> str:
    """An SVG drawing as a file that is light or dark as the reader's setting is.

    An image in Markdown has no style sheet but its own.  The colours of paper remain for programs
    that read none.
    """
    dark = STYLE_SHEET.read_text(encoding="utf-8").partition("prefers-color-scheme: dark")[2]
    values = dict(re.findall(r"--(\w+): (#\w+);", dark.partition("}")[0]))
    colors = {color: values[name[6:-1]] for color, name in THEME.items() if name != "currentColor"}
    colors.update({INK: values["ink"], PAPER: values["paper"]})
    rules = [f"text{{fill:{values['ink']}}}"]
    for color, instead in colors.items():
        for kind in ("fill", "stroke"):
            place = f'[style*="{kind}: {color.lower()}"]'
            rules.append(f"{place}{{{kind}:{instead}!important}}")
    style = f"@media (prefers-color-scheme: dark){{{''.join(rules)}}}</style>"
    return svg.replace("</style>", style, 1)


class Curve(NamedTuple):
    """A mean over seeds with its band."""

    x: Sequence[float]  # positions, increasing
    mean: Sequence[float]  # the mean over the seeds at each position
    low: Sequence[float]  # the least value over the seeds
    high: Sequence[float]  # the largest value over the seeds


def curve(runs: Sequence[Mapping[int, float]]) -> Optional[Curve]:
    """Mean and band at the positions that all runs have; None if they have fewer than two.

    Args:
        runs: values by position, one mapping for each seed.
    """
    common = together(runs) if runs else {}
    if len(common) < 2:
        return None
    values = np.array(list(common.values()))
    return Curve(list(common), values.mean(1), values.min(1), values.max(1))


def small_multiples(
    name: str,
    what: str,
    curves: Mapping[str, Curve],
    baseline: str,
    labels: Tuple[str, str],
    scales: Tuple[str, str] = ("linear", "linear"),
    settled: float = 0.0,
    note: str = "",
    front: str = "mean and range over the seeds (blue line and band)",
    limits: Optional[Tuple[float, float]] = None,
    mark: Optional[float] = None,
) -> Figure:
    """A panel for each system, with the mean of each other system behind it in grey.

    Args:
        what: what is drawn, at the beginning of the caption.
        curves: curves by system, in order.
        baseline: the system drawn dashed in every panel.
        labels: labels of the axes, with units.
        scales: scales of the axes, ``linear`` or ``log``.
        settled: the y axis shows all values after this fraction of the x axis; earlier ones may be
            beyond its edge.
        note: sentences at the end of the caption.
        front: how the system of a panel is drawn.
        limits: ends of the y axis; by default, values far from the rest are beyond the axis.
        mark: a place of the x axis with a dotted line.
    """
    caption = (
        f"{what}: {front}, the baseline {baseline} (dashed) and all others (thin lines). {note}"
    ).strip()
    start = settled * max(x for found in curves.values() for x in found.x)
    values = [
        value
        for found in curves.values()
        for x, *ends in zip(found.x, found.low, found.high)
        if x >= start
        for value in ends
    ]
    limits = limits or _limits(values, 4.0, scales[1])
    # all panels share their ticks, and systems may have different positions
    positions = sorted({x for found in curves.values() for x in found.x})

    def draw(columns: int, width: float) -> str:
        columns = min(columns, len(curves))
        rows = math.ceil(len(curves) / columns)
        figure, grid = import_pyplot("study --report").subplots(
            rows, columns, figsize=(width, 0.45 + 1.35 * rows), sharex=True, sharey=True,
            squeeze=False, constrained_layout=True,
        )  # fmt: skip
        panels = list(grid.flat)
        for axes, system in zip(panels, curves):
            _panel(axes, system, curves, baseline, mark)
            axes.set(xscale=scales[0], yscale=scales[1], ylim=limits)
            axes.tick_params(labelsize=7)
            if scales[0] == "log":  # the positions are few, and each one is named
                axes.set_xticks(positions, [f"{x:g}" for x in positions])
                axes.set_xticks([], minor=True)
            for axis, scale in zip("xy", scales):
                if scale == "linear":
                    axes.locator_params(axis=axis, nbins=4)
            if scales[1] == "log":
                _plain_ticks(axes.yaxis)
        for axes in panels[len(curves) :]:
            axes.set_visible(False)
        for axes in panels[len(curves) - columns : len(curves)]:
            axes.tick_params(labelbottom=True)
        figure.supxlabel(labels[0], fontsize=8)
        figure.supylabel(labels[1], fontsize=8)
        return to_svg(figure)

    return Figure(name, caption, draw(4, WIDE), draw(2, NARROW))


def _panel(
    axes: Any, system: str, curves: Mapping[str, Curve], baseline: str, mark: Optional[float]
) -> None:
    """Draw the curve of a system in front of the curves of the others."""
    for other, back in curves.items():
        if other not in (system, baseline):
            axes.plot(back.x, back.mean, color=BACK, linewidth=0.5, alpha=0.6)
    if baseline in curves and system != baseline:
        behind = curves[baseline]
        axes.plot(behind.x, behind.mean, "--", color=BASELINE, linewidth=1.1)
    own = curves[system]
    axes.fill_between(own.x, own.low, own.high, color=FRONT, alpha=0.3, linewidth=0)
    if mark is not None:
        axes.axvline(mark, color=INK, linestyle=":", linewidth=0.9)
    marker = "o" if len(own.x) < 12 else ""
    axes.plot(own.x, own.mean, color=FRONT, marker=marker, markersize=2.5)
    axes.set_title(system, fontsize=8, loc="left", pad=3)


def _plain_ticks(axis: Any) -> None:
    """Set ticks at 1, 2 and 5 times each power of ten, written as plain numbers."""
    ticker = import_extra("matplotlib.ticker", "study --report")
    axis.set_major_locator(ticker.LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(ticker.NullFormatter())


def dot_plot(
    name: str,
    caption: str,
    comparison: Comparison,
    points: Mapping[str, Sequence[float]],
    baseline: str,
    label: str,
) -> Figure:
    """Means with intervals, the best on top, and a small dot for each seed.

    Args:
        points: the score of each seed, by system.
        baseline: the system whose mean is drawn as a dashed line.
        label: label of the axis, with the unit.
    """
    order = list(reversed(comparison.order))
    limits = _limits([value for name in order for value in points[name]], 6.0)
    ends = [end for name in order for end in comparison.summaries[name].interval or ()]
    low, high = _room_for(ends, limits)

    def draw(width: float, columns: int) -> str:
        height = 0.7 + 0.24 * len(order) + 0.16 * math.ceil(4 / columns)
        figure, axes = import_pyplot("study --report").subplots(
            figsize=(width, height), constrained_layout={"w_pad": 0.12}
        )
        for row, system in enumerate(order):
            summary = comparison.summaries[system]
            special = system == baseline
            color = BASELINE if special else FRONT
            if low <= summary.mean <= high:
                _dot(axes, row, summary, points[system], color, "D" if special else "o")
            else:  # an arrow at the edge, so that one failure does not squeeze all others
                left = summary.mean < low
                axes.plot(
                    [low if left else high], [row], marker="<" if left else ">", color=color,
                    clip_on=False, zorder=5,
                )  # fmt: skip
                axes.annotate(
                    f"{summary.mean:.4g}", (low if left else high, row), fontsize=7,
                    va="center", ha="left" if left else "right",
                    xytext=(6 if left else -6, 0), textcoords="offset points",
                )  # fmt: skip
        if baseline in comparison.summaries:
            mean = comparison.summaries[baseline].mean
            axes.axvline(mean, color=BASELINE, linestyle="--", linewidth=0.9, zorder=0)
        axes.set_yticks(range(len(order)))
        axes.set_yticklabels(order)
        axes.set_ylim(-0.6, len(order) - 0.4)
        axes.set_xlim(low, high)
        axes.set_xlabel(label, fontsize=8)
        axes.locator_params(axis="x", nbins=6)
        axes.grid(axis="y", visible=False)
        axes.legend(
            handles=_legend(comparison, baseline), ncol=columns, fontsize=7,
            loc="lower right", bbox_to_anchor=(1, 1), handlelength=2.5, columnspacing=1.5,
        )  # fmt: skip
        return to_svg(figure)

    return Figure(name, caption, draw(WIDE * 0.75, 4), draw(NARROW, 2))


def _legend(comparison: Comparison, baseline: str) -> List[Any]:
    """What the marks of a dot plot are, as lines of matplotlib."""
    line = import_extra("matplotlib.lines", "study --report").Line2D
    several = any(summary.seeds > 1 for summary in comparison.summaries.values())
    marks = {"mean": {"marker": "o", "linestyle": "", "markersize": 5}}
    if several:
        marks["each seed"] = {"marker": "|", "linestyle": "", "markersize": 7}
        marks["95 % interval of the mean"] = {"linewidth": 1.2}
    found = [line([], [], color=FRONT, label=label, **style) for label, style in marks.items()]
    if baseline in comparison.summaries:
        style = {"marker": "D", "markersize": 5, "linestyle": "--", "linewidth": 0.9}
        found.append(line([], [], color=BASELINE, label="baseline", **style))
    return found


def _dot(
    axes: Any, row: int, summary: Summary, seeds: Sequence[float], color: str, marker: str
) -> None:
    if summary.interval is not None:
        axes.plot(summary.interval, [row, row], color=color, linewidth=1.2)
    axes.plot(seeds, [row] * len(seeds), "|", color=color, markersize=7, markeredgewidth=0.8)
    axes.plot([summary.mean], [row], marker=marker, color=color, markersize=5)


def _room_for(ends: Sequence[float], limits: Tuple[float, float]) -> Tuple[float, float]:
    """*limits*, moved apart for the ends of intervals; ends of long intervals stay outside.

    >>> _room_for([-0.5, 11.0, 40.0], (0.0, 10.0))
    (-0.65, 11.15)
    """
    low, high = limits
    room, margin = 0.15 * (high - low), 0.015 * (high - low)
    near = [end for end in ends if low - room <= end <= high + room]
    return min([low, *(end - margin for end in near)]), max([high, *(end + margin for end in near)])


def _limits(values: List[float], reach: float, scale: str = "linear") -> Tuple[float, float]:
    """Limits of an axis, without values further than *reach* interquartile ranges from the rest."""
    if scale == "log":
        low, high = _limits([math.log(value) for value in values if value > 0], reach)
        return math.exp(low), math.exp(high)
    known = np.array([value for value in values if math.isfinite(value)] or [0.0])
    quarter, half, most = np.percentile(known, (25, 50, 75))
    spread = reach * max(most - quarter, 0.002 * abs(half), 1e-9)
    inside = known[(known >= quarter - spread) & (known <= most + spread)]
    margin = 0.06 * max(inside.max() - inside.min(), 0.002 * abs(half), 1e-9)
    return float(inside.min() - margin), float(inside.max() + margin)
