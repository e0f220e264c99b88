"""``fairseq-posenc plot training``."""

import argparse
from pathlib import Path

from fairseq_posenc.analysis.training import METRICS, plot
from fairseq_posenc.cli.command import Command, quieten

DESCRIPTION = """\
Plot loss curves from the fairseq-train logs of one run, or of several side by side.

    fairseq-posenc plot training --output curves.png runs/quickstart/train.log
    fairseq-posenc plot training --output curves.png --labels stock ours -- a/train.log b/train.log
    fairseq-posenc plot training --output curves.png --labels a a b b -- {a,b}-seed{1,2}/train.log

A log is the output of fairseq-train, or its --log-file, with --log-format json or simple. Hollow
points mark the training loss, lines the validation loss. Runs with the same name, such as several
seeds, are drawn as one curve: their mean where all of them have a value, with the range of the
validation loss shaded."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("logs", nargs="+", type=Path, metavar="LOG")
    parser.add_argument("--output", required=True, type=Path, metavar="FILE")
    parser.add_argument(
        "--labels",
        nargs="+",
        default=(),
        metavar="NAME",
        help="names of the runs; runs with the same name are averaged (default: their folders)",
    )
    parser.add_argument("--metric", choices=METRICS, default="loss")
    parser.add_argument(
        "--from",
        dest="first",
        type=int,
        default=0,
        metavar="UPDATE",
        help="leave out earlier updates, whose high loss would flatten the curves (default: 0)",
    )


def run(args: argparse.Namespace) -> None:
    """Draw the figure."""
    quieten()
    plot(args.logs, args.labels, args.metric, args.first, args.output)


COMMAND = Command("training", "loss curves from training logs", DESCRIPTION, add_arguments, run)
