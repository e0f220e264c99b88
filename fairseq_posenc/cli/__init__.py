"""``fairseq-posenc COMMAND``, the same as ``python -m fairseq_posenc COMMAND``.

Each module of this folder is a group of commands.  A command declares its arguments without
importing PyTorch or fairseq, so that ``--help`` is immediate, and imports its implementation only
when it runs.
"""

import argparse
from typing import Optional, Sequence

from fairseq_posenc import __version__
from fairseq_posenc.cli import (
    analysis,
    average,
    benchmark,
    catalogue,
    doctor,
    exchange,
    reading,
    sentence_task,
    serving,
    step,
    study,
    subwords,
    text,
)
from fairseq_posenc.cli.command import add_commands
from fairseq_posenc.flags.usage import OneLineParser
from fairseq_posenc.serving.streams import standard_output

COMMANDS = (
    catalogue.PATH,
    catalogue.LIST,
    doctor.COMMAND,
    average.COMMAND,
    exchange.IMPORT,
    exchange.EXPORT,
    exchange.PACK,
    serving.TRANSLATE,
    serving.PREDICT,
    *text.COMMANDS,
    *subwords.COMMANDS,
    reading.COMMAND,
    sentence_task.COMMAND,
    analysis.PLOT,
    analysis.ANALYSE,
    benchmark.COMMAND,
    study.COMMAND,
    *step.COMMANDS,
)


def get_parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    parser = OneLineParser(prog="fairseq-posenc", description="Position encodings for fairseq.")
    parser.add_argument("--version", action="version", version=f"fairseq_posenc {__version__}")
    add_commands(parser, COMMANDS)
    return parser


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run one command; returns the exit status.

    Args:
        argv: the arguments, by default those of the process.

    Raises:
        UsageError: one line saying what the user has to change.
    """
    args = get_parser().parse_args(argv)
    with standard_output():
        return args.run(args) or 0
