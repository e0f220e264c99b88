"""Errors of argparse on one line, with the nearest known name."""

import argparse
import difflib
import re
from typing import NoReturn, Sequence

from fairseq_posenc.basics.errors import UsageError


def one_line(message: str, known: Sequence[str], words: Sequence[str] = ()) -> str:
    """The line that replaces an error of argparse and its usage.

    >>> one_line("argument --norm/-n: invalid choice: 'rmss' (choose from 'layer', 'rms')", [])
    '--norm rmss: unknown; did you mean rms?'
    >>> one_line("unrecognized arguments: --beem 4", ["--beam", "--lenpen"])
    '--beem: unknown flag; did you mean --beam?'

    Args:
        message: what argparse says.
        known: the flags of the command.
        words: the command line.
    """
    choice = re.match(r"argument (\S+): invalid choice: '?(.*?)'? \(choose from (.*)\)$", message)
    if choice:
        flag, value, names = choice.groups()
        name = "" if flag.isupper() else f"{_given(flag, words)} "
        return f"{name}{value}: unknown" + near(value, re.findall(r"[\w.\-]+", names))
    invalid = re.match(r"argument (\S+): (invalid \S+ value): '(.*)'$", message)
    if invalid:
        flag, what, value = invalid.groups()
        return f"{_given(flag, words)} {value or repr(value)}: {what}"
    other = re.match(r"argument (\S+): (.*)$", message)
    if other:
        return f"{_given(other.group(1), words)}: {other.group(2)}"
    missing = re.match(r"the following arguments are required: (.*)$", message)
    if missing:
        return f"{missing.group(1)}: required"
    unknown = message.partition("unrecognized arguments: ")[2].split()
    if not unknown:
        return message
    flags = [word.partition("=")[0] for word in unknown if word.startswith("-")]
    if not flags:
        return f"{' '.join(unknown)}: unexpected; a value with spaces has to be quoted"
    return f"{flags[0]}: unknown flag" + near(flags[0], known, shown=0)


def near(value: str, known: Sequence[str], shown: int = 30) -> str:
    """A clause with the names in *known* nearest to *value*, or all if they are at most *shown*."""
    found = difflib.get_close_matches(value, dict.fromkeys(known), n=3, cutoff=0.6)
    if found:
        return "; did you mean {}?".format(" or ".join(found))
    return "; known: " + ", ".join(known) if len(known) <= shown else ""


def flags_of_parser(parser: argparse.ArgumentParser) -> Sequence[str]:
    """All flags that *parser* knows."""
    return [name for action in parser._actions for name in action.option_strings]


def _given(flag: str, words: Sequence[str]) -> str:
    """The spelling of ``--max-sentences/--batch-size`` that is in *words*, or else the longest."""
    names = flag.split("/")
    given = [name for name in names for word in words if word.partition("=")[0] == name]
    return max(given or names, key=lambda name: (name.startswith("--"), len(name)))


class OneLineParser(argparse.ArgumentParser):
    """A parser that raises :class:`UsageError` instead of printing its usage."""

    def error(self, message: str) -> NoReturn:
        """Raise *message* as one line."""
        raise UsageError(one_line(message, flags_of_parser(self)))
