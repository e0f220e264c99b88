"""One style for all figures: drawing them with matplotlib, and saving them atomically.

Curves differ in colour, dash and marker, so they can also be told apart in greyscale.  The colours
are from the palettes of Okabe and Ito (Color Universal Design) and of Tol (Colour Schemes), chosen
and ordered to differ most both for normal vision and for eyes without red, green or blue cones.
"""

from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any, Dict, Mapping, Sequence

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.files import check_writable, replace_file
from fairseq_posenc.basics.packages import import_extra

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = ("pdf", "png", "svg")
#: The resolution of a PNG, in dots per inch.
RESOLUTION = 300
COLORS = ("#0072B2", "#000000", "#CC6677", "#332288", "#56B4E9", "#882255", "#999933")
DASHES = ("-", "--", "-.", ":")
MARKERS = "os^vD*<>ph"
#: A colour map whose lightness grows with the value, and whose middle is grey.
HEAT = "cividis"
STYLE: Dict[str, Any] = {
    "axes.grid": True,
    "grid.alpha": 0.3,
    "legend.frameon": False,
    "legend.handlelength": 3.5,  # long enough to show every dash pattern
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 8,
    "figure.titlesize": 9,
    "legend.fontsize": 8,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "lines.markersize": 4,
    "lines.linewidth": 1.4,
    "svg.fonttype": "none",  # text stays text, and can be searched
    "pdf.fonttype": 42,
    "svg.hashsalt": "fairseq_posenc",  # equal figures give equal files
}


def import_pyplot(needed_by: str) -> Any:
    """``matplotlib.pyplot`` in the style of all figures, with a back-end that only writes files.

    If matplotlib is missing, the error begins with *needed_by*, the flag or argument for a figure.
    """
    import_extra("matplotlib", needed_by).use("Agg")
    pyplot = import_extra("matplotlib.pyplot", needed_by)
    pyplot.rcParams.update(STYLE)
    return pyplot


def curve_style(number: int) -> Dict[str, str]:
    """Colour, dash and marker of curve *number*, counted from 0, as arguments of ``plot``.

    >>> curve_style(0)
    {'color': '#0072B2', 'linestyle': '-', 'marker': 'o'}
    """
    return {
        "color": COLORS[number % len(COLORS)],
        "linestyle": DASHES[number % len(DASHES)],
        "marker": MARKERS[number % len(MARKERS)],
    }


def plot_runs(axes: Any, runs: Mapping[int, Sequence[float]], **style: Any) -> None:
    """Plot the mean over runs as a curve, and a band from the least to the largest value.

    Args:
        runs: the values of all runs, keyed by their position on the horizontal axis.
        style: arguments of ``plot``, which must include ``color``.
    """
    means, low, high = ([of(values) for values in runs.values()] for of in (mean, min, max))
    axes.plot(list(runs), means, **style)
    axes.fill_between(list(runs), low, high, color=style["color"], alpha=0.2, linewidth=0)


def heat_limits(low: float, high: float) -> Dict[str, float]:
    """Limits of a colour scale, as arguments of ``imshow``; 0 is the middle if both signs occur."""
    if low < 0 < high:
        high = max(-low, high)
        low = -high
    return {"vmin": low, "vmax": high}


def check_figure(output: Path, flag: str) -> str:
    """Check, before a long computation, that its figure can be drawn and written.

    Returns:
        the format, one of :data:`FORMATS`: the suffix of the file's name, or png without one.
    """
    check_writable(output, flag)
    kind = output.suffix.lower().lstrip(".") or "png"
    if kind not in FORMATS:
        message = f"{flag} {output}: unknown format; give a name that ends in .pdf, .png or .svg"
        raise UsageError(message.strip())
    import_pyplot(flag)
    return kind


def save_figure(figure: "Figure", output: Path, flag: str = "--output") -> None:
    """Write *figure* to *output*, the value of *flag*, and close it."""
    kind = check_figure(output, flag)
    undated = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}.get(kind)
    with replace_file(output, flag) as partial:
        figure.savefig(partial, format=kind, dpi=RESOLUTION, metadata=undated)
    import_pyplot(flag).close(figure)
