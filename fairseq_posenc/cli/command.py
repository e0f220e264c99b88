"""The definition of a command, and the set-up that most commands share."""

import argparse
import inspect
import logging
import sys
import warnings
from typing import Any, Callable, NamedTuple, Optional, Sequence

from fairseq_posenc.basics.errors import OneLineParser, UsageError
from fairseq_posenc.flags.settings import check_option

#: Declares an argument of a parser, without slow imports.
Declare = Callable[[argparse.ArgumentParser], object]
#: Executes a command with its parsed arguments; returns the exit status, or None for success.
Run = Callable[[argparse.Namespace], Optional[int]]


class Command(NamedTuple):
    """A command of ``fairseq-posenc``."""

    name: str  # the name on the command line
    summary: str  # one line for the list of commands
    description: str  # the text of its ``--help``
    arguments: Sequence[Declare]  # functions that declare its arguments
    run: Optional[Run]  # executes the command; None for a group


class CommandParser(OneLineParser):
    """The parser of a command, which can declare some arguments only when it parses.

    Declaring these arguments needs slow imports, so a bare ``--help`` does not show them.
    """

    #: Declares these arguments; takes the words of the command line after the command's name.
    late: Optional[Callable[[Sequence[str]], object]] = None

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """See :class:`argparse.ArgumentParser`."""
        if self.late is not None and args not in ([], ["-h"], ["--help"]):
            self.late(args)
        args, unknown = super().parse_known_args(args, namespace)
        for action in self._actions:
            check_option(args, action.dest, getattr(action, "bounds", {}))
        return args, unknown


def command(
    name: str, summary: str, *arguments: Declare, more: str = ""
) -> Callable[[Run], Command]:
    """Decorator that makes a function a command, with its docstring as the text of ``--help``.

    Args:
        name: as in :class:`Command`, like *summary* and *arguments*.
        more: text that follows the docstring in ``--help``.
    """

    def make(run: Run) -> Command:
        text = inspect.cleandoc(run.__doc__ or "")
        return Command(name, summary, f"{text}\n\n{more}".strip(), arguments, run)

    return make


def group(
    name: str, summary: str, description: str, metavar: str, commands: Sequence[Command]
) -> Command:
    """A command with the sub-commands *commands*, which its usage shows as *metavar*."""
    summary = f"{summary}: {', '.join(each.name for each in commands)}"
    declare = [lambda parser: add_commands(parser, commands, metavar)]
    return Command(name, summary, description, declare, None)


def add_commands(
    parser: argparse.ArgumentParser, commands: Sequence[Command], metavar: str = "COMMAND"
) -> None:
    """Add *commands* to *parser* as sub-commands, which its usage shows as *metavar*."""
    choices = parser.add_subparsers(metavar=metavar, required=True)
    for each in commands:
        subparser = choices.add_parser(
            each.name,
            help=each.summary,
            description=each.description,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if each.run is not None:
            subparser.set_defaults(run=each.run, parser=subparser)
        for declare in each.arguments:
            declare(subparser)
        if each.run is not None:
            subparser.usage = f"%(prog)s {_usage(subparser)}"


def _usage(parser: argparse.ArgumentParser) -> str:
    """A usage with the required arguments only, so that a command's help fits on a screen."""
    words, forms = ["[options]"], {"?": "[{}]", "+": "{} ...", argparse.REMAINDER: "[{} ...]"}
    for action in parser._actions:
        name = action.metavar or action.dest
        if action.required or not action.option_strings:
            form = forms.get(str(action.nargs), "{}").format(name)
            words.append(" ".join([*action.option_strings[:1], form]))
    return " ".join(words)


def argument(*names: str, **options: Any) -> Declare:
    """An argument with the names and options that ``ArgumentParser.add_argument`` takes."""
    return lambda parser: parser.add_argument(*names, **options)


def place(name: str, help: Optional[str] = None, **options: Any) -> Declare:
    """A positional argument; the usage shows its *name*, such as NEW_SOURCE."""
    dest = name.lower().replace("-", "_")
    return argument(dest, metavar=name, help=help, **options)


DEVICE = argument("--device", choices=("cpu", "cuda"), default="cpu", help="where to compute (cpu)")


def switch(name: str, help: str) -> Declare:
    """A flag without a value."""
    return argument(name, action="store_true", help=help)


def number(name: str, help: str, default: Any = None, kind: type = int, **options: Any) -> Declare:
    """A flag that takes a number; its help ends with the default if there is one.

    *options* can include the bounds of :func:`~fairseq_posenc.flags.settings.setting`.
    """
    shown = help if default is None else f"{help} ({default})".strip()
    bounds = {key: options.pop(key) for key in ("at_least", "below") if key in options}
    options = {"metavar": "N" if kind is int else "X", **options}

    def declare(parser: argparse.ArgumentParser) -> None:
        action: Any = parser.add_argument(name, type=kind, default=default, help=shown, **options)
        action.bounds = bounds

    return declare


def user_dir(what: str = "the folder of your own encodings, as in training") -> Declare:
    """The flag ``--user-dir DIR``, with the help text *what*."""
    return argument("--user-dir", metavar="DIR", help=what)


def quieten() -> None:
    """Silence log messages and warnings of fairseq, hydra and other libraries."""
    logging.disable(logging.WARNING)
    if not sys.warnoptions:  # unless python -W or PYTHONWARNINGS asks for them
        warnings.simplefilter("ignore")


def load_plug_in(folder: Optional[str] = None) -> None:
    """Import PyTorch and fairseq without their warnings, and register the plug-in.

    Args:
        folder: the value of ``--user-dir``; this folder is imported as well.
    """
    from fairseq_posenc import register

    quieten()
    for module in ("torch", "fairseq"):
        try:
            __import__(module)
        except Exception as error:  # a broken installation may raise anything
            raise UsageError(
                f"{module} cannot be imported ({error}); run `fairseq-posenc doctor`"
            ) from error
    register()
    from fairseq.utils import import_user_module

    try:
        import_user_module(argparse.Namespace(user_dir=folder))  # None for no folder
    except (ImportError, OSError) as error:
        raise UsageError(
            f"--user-dir {folder}: cannot be imported ({error}); give the folder used in training"
        ) from error
