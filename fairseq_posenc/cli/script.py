"""``fairseq-posenc script``."""

import argparse
import os
import runpy
import sys

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.cli.command import Command

DESCRIPTION = """\
Run a Python script that uses this package, such as those of the recipes.

    fairseq-posenc script examples/common/score.py --help

`python FILE` does the same, but waits for fairseq: importing the package registers it there. A
script that is run here starts at once, and calls fairseq_posenc.register() if it needs that."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("file", metavar="FILE", help="the script")
    parser.add_argument("arguments", metavar="ARGUMENT", nargs=argparse.REMAINDER)


def run(args: argparse.Namespace) -> None:
    """Run the script as Python does."""
    if not os.path.isfile(args.file):
        raise UsageError(f"script {args.file}: no such file")
    sys.argv = [args.file, *args.arguments]
    sys.path.insert(0, os.path.dirname(os.path.abspath(args.file)))
    runpy.run_path(args.file, run_name="__main__")


COMMAND = Command("script", "run a Python script of a recipe", DESCRIPTION, add_arguments, run)
