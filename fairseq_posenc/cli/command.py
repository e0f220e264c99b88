"""The definition of a command, and the set-up that most commands share."""

import argparse
import logging
import sys
import warnings
from typing import Callable, NamedTuple, Optional, Sequence

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.flags.settings import check_option


class Command(NamedTuple):
    """A command of ``fairseq-posenc``.

    Args:
        name: its name on the command line.
        summary: one line for the list of commands.
        description: the text of its ``--help``.
        add_arguments: declares its arguments, without slow imports.
        run: executes it with the parsed arguments and returns the exit status, or None for success;
            None for a group of commands.
    """

    name: str
    summary: str
    description: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Optional[Callable[[argparse.Namespace], Optional[int]]]


def add_commands(
    parser: argparse.ArgumentParser, commands: Sequence[Command], metavar: str = "COMMAND"
) -> None:
    """Add *commands* to *parser* as sub-commands, shown as *metavar* in its usage."""
    choices = parser.add_subparsers(metavar=metavar, required=True)
    for command in commands:
        subparser = choices.add_parser(
            command.name,
            help=command.summary,
            description=command.description,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if command.run is not None:
            subparser.set_defaults(run=command.run)
        command.add_arguments(subparser)


def no_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare no arguments."""


def at_least(args: argparse.Namespace, **least: float) -> None:
    """Refuse numbers that are too small.

    Args:
        args: parsed arguments; those that are not given are None.
        least: the smallest value of each argument, by name.

    Raises:
        UsageError: naming the first flag whose value is smaller.
    """
    for name, smallest in least.items():
        check_option(args, name, {"at_least": smallest})


def quieten() -> None:
    """Silence log messages and warnings of fairseq, hydra and other libraries."""
    logging.disable(logging.WARNING)
    if not sys.warnoptions:  # unless python -W or PYTHONWARNINGS asks for them
        warnings.simplefilter("ignore")


def add_user_dir(
    parser: argparse.ArgumentParser,
    what: str = "your encodings, if the model has some; as in training",
) -> None:
    """Declare the folder of a user's own parts, with *what* as its help."""
    parser.add_argument("--user-dir", metavar="DIR", help=what)


def load_plug_in(user_dir: Optional[str] = None) -> None:
    """Import PyTorch and fairseq without their warnings, and register the plug-in.

    Args:
        user_dir: a folder of the user's to import besides.

    Raises:
        UsageError: one of them cannot be imported.
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
    if user_dir is not None:
        _import_folder(user_dir)


def _import_folder(user_dir: str) -> None:
    from fairseq.utils import import_user_module

    try:
        import_user_module(argparse.Namespace(user_dir=user_dir))
    except (ImportError, OSError) as error:
        raise UsageError(
            f"--user-dir {user_dir}: cannot be imported ({error}); give the folder of training"
        ) from error
