"""``fairseq-posenc reading windows``."""

import argparse
from typing import Any

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.cli.command import Command, load_plug_in

DESCRIPTION = """\
Print the number of windows of the training set, to set the length of a training.

    fairseq-posenc reading windows DATA --max-positions 384 --stride 128 --separator-token 2

An epoch with --batch-size B has that number divided by B updates, rounded up. Of the flags, which
may be all those of the training, those of --task span_prediction count."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("data", metavar="DATA", help="a folder that `reading prepare` wrote")
    parser.add_argument(
        "flags", metavar="FLAGS", nargs=argparse.REMAINDER, help="flags for fairseq-train"
    )


def run(args: argparse.Namespace) -> None:
    """Print the number."""
    load_plug_in()
    from fairseq.dataclass.utils import gen_parser_from_dataclass

    from fairseq_posenc.flags.usage import OneLineParser
    from fairseq_posenc.training.tasks.span_prediction import (
        SpanPredictionConfig,
        SpanPredictionTask,
    )

    parser = OneLineParser(prog="fairseq-posenc reading windows")
    gen_parser_from_dataclass(parser, SpanPredictionConfig())
    cfg: Any = parser.parse_known_args([args.data, *args.flags])[0]
    cfg.no_shuffle = True
    try:
        print(len(SpanPredictionTask.setup_task(cfg).load_dataset("train")))
    except FileNotFoundError as error:
        raise UsageError(
            f"{args.data}: has no training set; give a folder that `reading prepare` wrote"
        ) from error


COMMAND = Command("windows", "count the windows of a training set", DESCRIPTION, add_arguments, run)
