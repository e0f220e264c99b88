"""Installation of the one-line errors in fairseq's commands."""

import argparse
import sys
from types import TracebackType
from typing import Any, Callable, List, NoReturn, Optional, Type

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.command_line.failures import explained
from fairseq_posenc.command_line.parsing import parse_error
from fairseq_posenc.compat.hooks import hook_commands
from fairseq_posenc.flags.values import check_values


def install() -> None:
    """Report mistakes on fairseq's command lines on one line; idempotent.

    Python code that uses fairseq keeps its exceptions.
    """
    hook_commands(_parsing, _error_under_hydra)


def _parsing(parse_args_and_arch: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(
        parser: Any, input_args: Optional[List[str]] = None, *args: Any, **kwargs: Any
    ) -> Any:
        if "error" in vars(parser):  # fairseq calls this function from within
            return parse_args_and_arch(parser, input_args, *args, **kwargs)
        words = [str(word) for word in (sys.argv[1:] if input_args is None else input_args)]

        def error(message: str) -> NoReturn:
            raise UsageError(parse_error(message, parser, words))

        parser.error = error
        try:
            parsed = parse_args_and_arch(parser, input_args, *args, **kwargs)
        finally:
            del parser.error
        namespace = parsed[0] if isinstance(parsed, tuple) else parsed
        check_values(namespace)
        if input_args is None:  # a command of its own, not a call from Python
            sys.excepthook = _Report(namespace)
        return parsed

    return wrapper


class _Report:
    """Replacement of ``sys.excepthook`` that prints one line for a known error.

    Args:
        args: the parsed command line.
    """

    def __init__(self, args: argparse.Namespace) -> None:
        self.flags = vars(args)

    def __call__(
        self, kind: Type[BaseException], error: BaseException, trace: Optional[TracebackType]
    ) -> None:
        known = explained(error, self.flags)
        if known is None:
            sys.__excepthook__(kind, error, trace)
        else:
            print(known, file=sys.stderr)


def _error_under_hydra() -> Optional[UsageError]:
    """The error that Hydra is about to print with a traceback, if it is a known one."""
    error = sys.exc_info()[1]
    return None if error is None else explained(error, {})
