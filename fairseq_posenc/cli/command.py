"""What a command is, and what most commands do first."""

import argparse
import logging
import sys
import warnings
from typing import Callable, NamedTuple, Optional, Sequence

from fairseq_posenc.errors import UsageError


class Command(NamedTuple):
    """A command of ``fairseq-posenc``.

    Args:
        name: what is typed.
        summary: one line for the list of commands.
        description: the text of its ``--help``.
        add_arguments: declares its arguments; imports nothing that is slow.
        run: does it, given the arguments; returns the exit status, or None for success.  A group of
            commands has none, as each of them has its own.
    """

    name: str
    summary: str
    description: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Optional[Callable[[argparse.Namespace], Optional[int]]]


def add_commands(
    parser: argparse.ArgumentParser, commands: Sequence[Command], metavar: str = "COMMAND"
) -> None:
    """Let *parser* take one of *commands*, which its usage calls *metavar*."""
    choices = parser.add_subparsers(metavar=metavar, required=True)
    for command in commands:
        own = choices.add_parser(
            command.name,
            help=command.summary,
            description=command.description,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if command.run is not None:
            own.set_defaults(run=command.run)
        command.add_arguments(own)


def no_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare nothing."""


def quieten() -> None:
    """Silence what fairseq, hydra and other libraries log and warn about themselves."""
    logging.disable(logging.WARNING)
    if not sys.warnoptions:  # unless somebody asked to see them
        warnings.simplefilter("ignore")


def load_plug_in() -> None:
    """Import PyTorch and fairseq without their notices, and register the plug-in.

    Raises:
        UsageError: one of them does not import.
    """
    from fairseq_posenc import register

    quieten()
    for module in ("torch", "fairseq"):
        try:
            __import__(module)
        except Exception as error:  # a broken installation may raise anything
            raise UsageError(
                f"{module} cannot be imported ({error}); `fairseq-posenc doctor` names the fix"
            ) from error
    register()
