#!/usr/bin/env python3
"""Plot perplexity against context length, for checkpoints and settings side by side.

    plot_extrapolation.py DATA-BIN --output curves.png --lengths 64,128,256,512,1024 \\
        rotary=runs/rotary/checkpoint_last.pt alibi=runs/alibi/checkpoint_last.pt \\
        "yarn=runs/rotary/checkpoint_last.pt \\
            {'rotary_scaling': 'yarn', 'rotary_scaling_factor': 8}"

NAME=CHECKPOINT is a curve; a dictionary after it overrides settings of the model, as
--model-overrides does in fairseq. Runs of the same NAME, as of several seeds, make one curve: the
mean of their perplexities, with their range shaded.

Context length L: the model reads windows of L tokens, each from position 0, and is scored on the
last K tokens of a window (--last, half of the shortest length unless given), on tokens that see
the L - K + 1 to L tokens before them. The windows of every L end at the same places. So every
length and every model is scored on the same tokens, and what differs is how far back they see.

The usual measure cuts the text into blocks of L and scores all of it. There a longer block looks
better for having fewer beginnings, in which tokens see little. It is --lengths L --last L here, one
length at a time, up to an incomplete block at the end.

The curve of a model with a table of positions ends where the table does. A dashed line marks the
length of training. The figures are printed as a table, too, and written to --csv.
"""

import argparse
import csv
import importlib.util
import logging
import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import Dict, Iterator, List, Optional, Sequence

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from extrapolation import How, Reading, check_run, measure, parse_run  # noqa: E402

import fairseq_posenc  # noqa: E402, F401
from fairseq_posenc.errors import UsageError  # noqa: E402

MARKERS = "osv^D*<>ph"
WIDE = 3  # range of perplexities, as a ratio, beyond which their axis is logarithmic


def by_name(readings: Sequence[Reading]) -> Dict[str, List[Reading]]:
    """The readings of every curve."""
    curves: Dict[str, List[Reading]] = {}
    for reading in readings:
        curves.setdefault(reading.run.name, []).append(reading)
    return curves


def perplexities(readings: Sequence[Reading], length: int) -> List[float]:
    """What the runs of one curve have at *length*; empty where one of them has ended."""
    if not all(length in reading.bits for reading in readings):
        return []
    return [reading.perplexity(length) for reading in readings]


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def render(readings: Sequence[Reading], args: argparse.Namespace) -> List[str]:
    """The table in Markdown: a row a curve, a column a length."""
    lines = [
        f"Perplexity of {readings[0].tokens:,} tokens of {args.subset}, the last {args.last} of "
        "windows of so many:"
    ]
    lines += ["", "| name | " + " | ".join(map(str, args.lengths)) + " |"]
    lines.append("|" + " --- |" * (len(args.lengths) + 1))
    for name, group in by_name(readings).items():
        cells = []
        for length in args.lengths:
            values = perplexities(group, length)
            each = f" ({', '.join(f'{value:.2f}' for value in values)})" if len(values) > 1 else ""
            cells.append(f"{mean(values):.2f}{each}" if values else "-")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Gives a file to write beside *path*, which takes its name at the end."""
    partial = path.with_name(path.name + ".partial")
    try:
        yield partial
        os.replace(str(partial), str(path))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    finally:
        if partial.exists():
            partial.unlink()


def write_csv(readings: Sequence[Reading], args: argparse.Namespace) -> None:
    """One row a checkpoint and length."""
    fields = "name checkpoint overrides trained subset tokens last length bits perplexity".split()
    with written_whole(args.csv) as partial, open(str(partial), "w", newline="") as stream:
        table = csv.writer(stream)
        table.writerow(fields)
        for reading in readings:
            run = reading.run
            same = [run.name, run.path, run.overrides or "", reading.trained]
            same += [args.subset, reading.tokens, args.last]
            for length, bits in reading.bits.items():
                row = [length, f"{bits:.6f}", f"{reading.perplexity(length):.4f}"]
                table.writerow(same + row)


def draw(readings: Sequence[Reading], args: argparse.Namespace) -> None:
    """Draw all curves into one PNG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot, ticker

    figure, axes = pyplot.subplots(figsize=(7.5, 5), constrained_layout=True)
    for number, (name, group) in enumerate(by_name(readings).items()):
        color, marker = f"C{number % 10}", MARKERS[number % len(MARKERS)]
        lengths = [length for length in args.lengths if perplexities(group, length)]
        values = [perplexities(group, length) for length in lengths]
        means, low, high = ([f(each) for each in values] for f in (mean, min, max))
        ended = lengths != args.lengths
        label = f"{name} (ends at {min(r.longest for r in group):g})" if ended else name
        axes.plot(lengths, means, "-", marker=marker, markersize=5, color=color, label=label)
        axes.fill_between(lengths, low, high, color=color, alpha=0.2)
        if ended:
            axes.plot(lengths[-1:], means[-1:], "x", color=color, markersize=12, markeredgewidth=2)
    for trained in sorted({reading.trained for reading in readings}):
        axes.axvline(trained, linestyle="--", color="grey", linewidth=1, zorder=0)
        place, top = (trained, 0.99), axes.get_xaxis_transform()  # up as a share of the height
        text = axes.annotate(f" trained at {trained}", place, xycoords=top, va="top", fontsize=8)
        text.set_color("grey")
    axes.set_xscale("log", base=2)
    axes.set_xticks(args.lengths)
    found = [reading.perplexity(length) for reading in readings for length in reading.bits]
    if max(found) > WIDE * min(found):
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 1.5, 2, 3, 5, 7)))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(ticker.FormatStrFormatter("%g"))
        axis.set_minor_locator(ticker.NullLocator())
    axes.set(xlabel="context length (tokens)", ylabel=f"perplexity ({args.subset})")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize=8)
    with written_whole(args.output) as partial:
        figure.savefig(str(partial), format="png", dpi=120)
    pyplot.close(figure)


def read_lengths(text: str) -> List[int]:
    """Growing lengths from numbers separated by commas.

    Raises:
        UsageError: if *text* is something else.
    """
    try:
        lengths = sorted({int(number) for number in text.split(",")})
    except ValueError:
        lengths = []
    if not lengths or lengths[0] < 1:
        raise UsageError(f"--lengths {text}: expected numbers such as 128,256,512")
    return lengths


def get_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", metavar="DATA-BIN", help="what fairseq-preprocess made")
    parser.add_argument("runs", nargs="+", metavar="NAME=CHECKPOINT")
    parser.add_argument("--output", required=True, type=Path, metavar="PNG")
    parser.add_argument("--csv", type=Path, metavar="CSV", help="write the figures, too")
    parser.add_argument("--lengths", required=True, metavar="L,L,...", help="context lengths")
    parser.add_argument("--last", type=int, metavar="K", help="tokens scored of a window")
    parser.add_argument("--subset", default="valid", help="text of DATA-BIN (valid)")
    parser.add_argument(
        "--tokens", type=int, metavar="N", help="score N tokens, spread over the text (all)"
    )
    parser.add_argument("--max-tokens", type=int, default=8192, help="of a batch (8192)")
    parser.add_argument("--cpu", action="store_true", help="leave a GPU alone")
    return parser


def check_arguments(args: argparse.Namespace) -> None:
    """Complete the arguments, in place, and refuse what would fail after hours of measuring.

    Raises:
        UsageError: naming the flag.
    """
    args.lengths = read_lengths(args.lengths)
    shortest = args.lengths[0]
    args.last = max(shortest // 2, 1) if args.last is None else args.last
    for flag in ("last", "tokens", "max_tokens"):
        number = getattr(args, flag)
        if number is not None and number < 1:
            raise UsageError(f"--{flag.replace('_', '-')} {number}: expected 1 or more")
    if args.last > shortest:
        raise UsageError(f"--last {args.last}: windows of --lengths {shortest} have fewer tokens")
    for flag, path in (("--output", args.output), ("--csv", args.csv)):
        if path is not None and (path.is_dir() or not path.resolve().parent.is_dir()):
            raise UsageError(f"{flag} {path}: give a file in a folder that exists")
    if importlib.util.find_spec("matplotlib") is None:
        raise UsageError("matplotlib is not installed; run: pip install matplotlib")


def main(arguments: Optional[Sequence[str]] = None) -> None:
    args = get_parser().parse_args(arguments)
    check_arguments(args)
    logging.disable(logging.INFO)  # fairseq lets matplotlib say which fonts it tries
    runs = [parse_run(text) for text in args.runs]
    for run in runs:
        check_run(run)
    how = How(**{field: getattr(args, field) for field in How._fields})
    readings = [measure(run, how) for run in runs]
    print("\n".join(render(readings, args)))
    if args.csv:
        write_csv(readings, args)
    draw(readings, args)


if __name__ == "__main__":
    main()
