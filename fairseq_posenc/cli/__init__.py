"""``fairseq-posenc COMMAND``, the same as ``python -m fairseq_posenc COMMAND``.

A module in :data:`GROUPS`, or the module ``commands`` of a pack, declares a group of commands.  A
command declares its arguments without importing PyTorch or fairseq, so that ``--help`` is
immediate, and imports its implementation only when it runs.  If a command is in :data:`GROUPS`, no
other group is imported.
"""

import argparse
import importlib
import sys
from types import TracebackType
from typing import List, Optional, Sequence, Tuple, Type

from fairseq_posenc import __version__
from fairseq_posenc.basics.packages import load
from fairseq_posenc.cli.command import Command, CommandParser, Run, add_commands
from fairseq_posenc.cli.standard import printing

GROUPS = {
    "installation": ("path", "list", "doctor"),
    "checkpoints": ("average", "model-flags"),
    "conversion": ("import", "export"),
    "packing": ("pack",),
    "serving": ("translate", "predict"),
    "analysis": ("plot", "analyse"),
}


def commands(name: Optional[str] = None) -> List[Command]:
    """The command *name* alone, or all commands if none has that name."""
    groups = [group for group, names in GROUPS.items() if name in names]
    modules = [importlib.import_module(f"{__name__}.{group}") for group in groups or GROUPS]
    modules += [] if groups else load("commands")
    every = [command for module in modules for command in module.COMMANDS]
    return [command for command in every if command.name == name] or every


def get_parser(name: Optional[str] = None) -> argparse.ArgumentParser:
    """The parser of the command *name* alone, or of all commands if none has that name."""
    parser = CommandParser(prog="fairseq-posenc", description="Position encodings for fairseq.")
    parser.add_argument("--version", action="version", version=f"fairseq_posenc {__version__}")
    add_commands(parser, commands(name))
    return parser


def parse(words: Sequence[str]) -> Tuple[Run, argparse.Namespace]:
    """The function that runs a command, and parsed arguments that other processes can unpickle."""
    args, unknown = get_parser(words[0] if words else None).parse_known_args(words)
    parser = vars(args).pop("parser")
    if unknown:  # the top-level parser would suggest its own flags instead
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    return vars(args).pop("run"), args


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run one command; returns the exit status.

    Args:
        argv: the arguments, by default those of the process.

    Raises:
        UsageError: the user has to change something; the message, one line, says what.
        KeyboardInterrupt: after Ctrl-C; unless it is caught, the terminal shows one line.
    """
    sys.excepthook = _in_one_line
    with printing():
        run, args = parse(sys.argv[1:] if argv is None else argv)
        return run(args) or 0


def _in_one_line(
    kind: Type[BaseException], error: BaseException, trace: Optional[TracebackType]
) -> None:
    """Show an interrupt as one line, and anything else as Python does.

    After an interrupt Python ends by the signal, so a script that waits for the command also ends.
    """
    if kind is not KeyboardInterrupt:
        sys.__excepthook__(kind, error, trace)
    else:
        start = "\n" if sys.stderr.isatty() else ""  # to end the line that shows ^C
        print(f"{start}fairseq-posenc: interrupted", file=sys.stderr)
