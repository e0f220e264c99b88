"""One-line errors in fairseq's commands; Python code that uses fairseq keeps its exceptions."""

import argparse
import sys
from types import TracebackType
from typing import Any, Callable, List, NoReturn, Optional, Type

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.command_line.failures import explained
from fairseq_posenc.command_line.parsing import parse_error
from fairseq_posenc.flags.values import check_values


def parse_in_one_line(parse_args_and_arch: Callable[..., Any]) -> Callable[..., Any]:
    """Report what is wrong with a command line, and known errors of the command, on one line."""

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


def fail_in_one_line(is_env_set: Callable[[str], bool]) -> Callable[[str], bool]:
    """Raise a known error in one line, where Hydra prints a traceback for every exception.

    The wrapped function is the first that Hydra's ``run_and_report`` calls once it has caught one.
    """

    def wrapper(name: str) -> bool:
        error = sys.exc_info()[1]
        known = None if error is None else explained(error, {})
        if known is not None:
            raise known from None
        return is_env_set(name)

    return wrapper
