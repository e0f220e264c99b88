#!/usr/bin/env python3
"""Plot loss curves of fairseq-train logs, of one run or of several side by side.

    plot_training.py --output curves.png runs/quickstart/train.log
    plot_training.py --output curves.png --labels stock roformer -- a/train.log b/train.log
    plot_training.py --output curves.png --labels a a b b -- {a,b}-seed{1,2}/train.log

A log is what fairseq-train printed, or the file given to its --log-file, with --log-format json or
simple. Crosses mark the training loss, lines the validation loss. Runs of the same name, as of
several seeds, make one curve: their mean where all have a value, with the range of the validation
loss shaded.
"""

import argparse
import json
import os
import re
import statistics
import sys
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional, Sequence

METRICS = {  # name: axis title
    "loss": "training criterion (bits a token)",
    "nll_loss": "negative log-likelihood (bits a token)",
    "ppl": "perplexity",
    "bleu": "BLEU",
}
MINIMUM_UPDATES = 2  # of a curve worth a plot
SIMPLE_INNER = re.compile(r"epoch (\d+):\s+\d+ / \d+ (.*)")
SIMPLE_STATS = re.compile(r"epoch (\d+) \| (valid) on '[^']*' subset \| (.*)")


class Curves(NamedTuple):
    """Value by number of updates; a repeated line counts once."""

    train: Dict[int, float]
    valid: Dict[int, float]


def parse_line(line: str) -> Dict[str, str]:
    """Read one line of a log; validation keys begin with ``valid_``. Other lines give {}."""
    start = line.find('{"epoch"')
    if start >= 0:
        try:
            return {key: str(value) for key, value in json.loads(line[start:]).items()}
        except ValueError:  # cut off in mid-line, as by a full disk
            return {}
    inner = SIMPLE_INNER.search(line)
    if inner:
        return dict(pair.split("=", 1) for pair in inner.group(2).split(", ") if "=" in pair)
    stats = SIMPLE_STATS.search(line)
    if stats:
        pairs = (field.rsplit(" ", 1) for field in stats.group(3).split(" | "))
        return {f"valid_{pair[0]}": pair[1] for pair in pairs if len(pair) == 2}
    return {}


def read_curves(lines: Sequence[str], metric: str, first: int = 0) -> Curves:
    """Collect one metric from the lines of a log.

    Args:
        lines: what fairseq-train wrote.
        metric: a key of METRICS.
        first: leave out what comes before this update.
    """
    curves = Curves({}, {})
    for fields in map(parse_line, lines):
        for curve, prefix in ((curves.train, ""), (curves.valid, "valid_")):
            value, updates = fields.get(prefix + metric), fields.get(prefix + "num_updates")
            if value is not None and updates is not None and float(updates) >= first:
                curve[int(float(updates))] = float(value)
    return curves


def together(runs: Sequence[Dict[int, float]]) -> Dict[int, List[float]]:
    """The values of all runs at the updates that each of them has, in order."""
    updates = set(runs[0]).intersection(*runs[1:])
    return {number: [run[number] for run in runs] for number in sorted(updates)}


def draw(curves: Dict[str, List[Curves]], metric: str, output: Path) -> None:
    """Draw the mean of the runs of every name into one PNG, a colour a name, written beside first.

    Args:
        curves: runs by name.
        metric: a key of METRICS.
        output: where to write.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.5), constrained_layout=True)
    for number, (label, runs) in enumerate(curves.items()):
        color = f"C{number % 10}"
        training = together([run.train for run in runs])
        valid = together([run.valid for run in runs])
        for points, style, part in ((training, "x", "training"), (valid, "-o", "valid")):
            if points:
                axes.plot(
                    list(points),
                    [statistics.mean(values) for values in points.values()],
                    style,
                    color=color,
                    markersize=4,
                    alpha=0.5 if part == "training" else 1,
                    label=f"{label}, {part}",
                )
        if len(runs) > 1:
            low, high = [min(v) for v in valid.values()], [max(v) for v in valid.values()]
            axes.fill_between(list(valid), low, high, color=color, alpha=0.2, linewidth=0)
    axes.set(xlabel="updates", ylabel=METRICS[metric])
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    partial = output.with_name(output.name + ".partial")
    figure.savefig(str(partial), format="png", dpi=120)
    pyplot.close(figure)
    os.replace(str(partial), str(output))


def main(arguments: Optional[Sequence[str]] = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("logs", nargs="+", type=Path, metavar="LOG")
    parser.add_argument("--output", required=True, type=Path, metavar="PNG")
    parser.add_argument(
        "--labels",
        nargs="+",
        metavar="NAME",
        help="names of the runs; those of one name are averaged (default: the folders of the logs)",
    )
    parser.add_argument("--metric", choices=METRICS, default="loss")
    parser.add_argument(
        "--from",
        dest="first",
        type=int,
        default=0,
        metavar="UPDATE",
        help="leave out earlier updates, whose loss flattens what follows (default: 0)",
    )
    args = parser.parse_args(arguments)
    labels: List[str] = args.labels or [log.resolve().parent.name for log in args.logs]
    if len(labels) != len(args.logs):
        sys.exit(f"--labels {' '.join(labels)}: expected {len(args.logs)} names, one a log")
    if not args.labels and len(set(labels)) != len(labels):
        sys.exit(f"{' '.join(labels)}: folders of the same name; tell them apart with --labels")
    curves: Dict[str, List[Curves]] = {}
    for label, log in zip(labels, args.logs):
        try:
            text = log.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            sys.exit(f"{log}: {error.strerror}")
        run = read_curves(text.splitlines(), args.metric, args.first)
        if max(len(run.train), len(run.valid)) < MINIMUM_UPDATES:
            sys.exit(
                f"{log}: no curve of {args.metric} from update {args.first} on; "
                "train with --log-format json, and with a --log-interval below the updates"
            )
        curves.setdefault(label, []).append(run)
    for label, runs in curves.items():
        shared = together([run.train for run in runs]), together([run.valid for run in runs])
        if max(map(len, shared)) < MINIMUM_UPDATES:
            sys.exit(f"--labels {label}: its runs have no updates in common")
    try:
        draw(curves, args.metric, args.output)
    except ImportError:
        sys.exit("matplotlib is not installed; run: pip install matplotlib")
    except OSError as error:
        sys.exit(f"--output {args.output}: {error.strerror}")


if __name__ == "__main__":
    main()
