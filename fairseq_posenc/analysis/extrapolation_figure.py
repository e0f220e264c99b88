"""Perplexity against context length as a table, a CSV file and a figure."""

import csv
from argparse import Namespace
from statistics import mean
from typing import Dict, List, Sequence

from fairseq_posenc.analysis.extrapolation import (
    EvalConfig,
    Measurement,
    check_run,
    measure,
    parse_run,
)
from fairseq_posenc.analysis.figures import (
    check_figure,
    curve_style,
    import_pyplot,
    length_axes,
    parse_lengths,
    plot_runs,
    save_figure,
)
from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.files import check_writable
from fairseq_posenc.basics.lines import write_text
from fairseq_posenc.basics.tables import markdown_table
from fairseq_posenc.flags.options import option
from fairseq_posenc.flags.settings import check_option

WIDE = 3  # ratio of perplexities above which their axis is logarithmic


def by_name(measurements: Sequence[Measurement]) -> Dict[str, List[Measurement]]:
    """The measurements of each curve."""
    curves: Dict[str, List[Measurement]] = {}
    for measurement in measurements:
        curves.setdefault(measurement.run.name, []).append(measurement)
    return curves


def perplexities(measurements: Sequence[Measurement], length: int) -> List[float]:
    """Perplexities of the runs of a curve at *length*; empty if one of them ends before."""
    if not all(length in measurement.bits for measurement in measurements):
        return []
    return [measurement.perplexity(length) for measurement in measurements]


def render(measurements: Sequence[Measurement], args: Namespace) -> List[str]:
    """The table in Markdown, with a row per curve and a column per length."""
    what = (
        f"Perplexity of {measurements[0].tokens:,} tokens of {args.subset}, the last {args.last} "
        "of windows of these lengths:"
    )
    rows = []
    for name, group in by_name(measurements).items():
        cells = []
        for length in args.lengths:
            values = perplexities(group, length)
            each = f" ({', '.join(f'{value:.2f}' for value in values)})" if len(values) > 1 else ""
            cells.append(f"{mean(values):.2f}{each}" if values else "-")
        rows.append([name, *cells])
    return [what, "", *markdown_table(["name", *map(str, args.lengths)], rows)]


def write_csv(measurements: Sequence[Measurement], args: Namespace) -> None:
    """Write one row per checkpoint and length."""
    fields = "name checkpoint overrides trained subset tokens last length bits perplexity".split()
    with write_text(args.csv, "--csv") as stream:
        table = csv.writer(stream)
        table.writerow(fields)
        for measurement in measurements:
            run = measurement.run
            same = [run.name, run.path, run.overrides or "", measurement.trained]
            same += [args.subset, measurement.tokens, args.last]
            for length, bits in measurement.bits.items():
                row = [length, f"{bits:.6f}", f"{measurement.perplexity(length):.4f}"]
                table.writerow(same + row)


def draw(measurements: Sequence[Measurement], args: Namespace) -> None:
    """Plot all curves in one figure."""
    figure, axes = import_pyplot("--output").subplots(figsize=(8.5, 5), constrained_layout=True)
    for number, (name, group) in enumerate(by_name(measurements).items()):
        style, color = curve_style(number), curve_style(number)["color"]
        runs = {n: perplexities(group, n) for n in args.lengths if perplexities(group, n)}
        ended = list(runs) != args.lengths
        label = f"{name} (ends at {min(r.longest for r in group):g})" if ended else name
        plot_runs(axes, runs, label=label, **style)
        if ended:
            end = list(runs)[-1:]
            marks = {"color": color, "markersize": 12, "markeredgewidth": 2}
            axes.plot(end, [mean(runs[length]) for length in end], "x", **marks)
    for trained in sorted({measurement.trained for measurement in measurements}):
        axes.axvline(trained, linestyle="--", color="grey", linewidth=1, zorder=0)
        place, top = (trained, 0.99), axes.get_xaxis_transform()  # y as a share of the height
        text = axes.annotate(f" trained at {trained}", place, xycoords=top, va="top", fontsize=8)
        text.set_color("grey")
    found = [m.perplexity(length) for m in measurements for length in m.bits]
    wide = max(found) > WIDE * min(found)
    length_axes(axes, args.lengths, (1, 1.5, 2, 3, 5, 7) if wide else ())
    axes.set(xlabel="context length (tokens)", ylabel=f"perplexity ({args.subset})")
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1))  # beside the curves, which fill the axes
    save_figure(figure, args.output)


def check_arguments(args: Namespace) -> None:
    """Complete the arguments, in place, and refuse those that would fail after the measurement.

    Raises:
        UsageError: naming the flag.
    """
    args.lengths = parse_lengths(args.lengths)
    shortest = args.lengths[0]
    args.last = max(shortest // 2, 1) if args.last is None else args.last
    for name in ("last", "tokens", "max_tokens"):
        check_option(args, name, {"at_least": 1})
    if args.last > shortest:
        raise UsageError(f"--last {args.last}: windows of --lengths {shortest} have fewer tokens")
    check_figure(args.output, "--output")
    if args.csv is not None:
        check_writable(args.csv, "--csv")


def plot(args: Namespace) -> None:
    """Measure, print and plot, as ``fairseq-posenc plot extrapolation`` does.

    Args:
        args: the arguments of that command.

    Raises:
        UsageError: an argument is wrong, or a checkpoint or the data cannot be used.
    """
    check_arguments(args)
    runs = [parse_run(text) for text in args.runs]
    for run in runs:
        check_run(run)
    config = EvalConfig(**{field: option(args, field) for field in EvalConfig._fields})
    measurements = [measure(run, config) for run in runs]
    print("\n".join(render(measurements, args)))
    if args.csv:
        write_csv(measurements, args)
    draw(measurements, args)
