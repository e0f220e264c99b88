"""One-line reports of user errors: the exception class, and messages about command lines.

In this package, to *refuse* something means to raise :class:`UsageError` with a message that names
the flag or file, its value, and what would work.
"""

import argparse
import difflib
import re
from typing import Any, NoReturn, Sequence

_PREFIX = "fairseq_posenc: error: "


class UsageError(SystemExit, ValueError):
    """An error in a flag, a file or a combination of them, reported on one line.

    It is a :class:`ValueError`, so Python code catches it as usual.  It is also a
    :class:`SystemExit`, so a command line that does not catch it prints the line to
    standard error and exits with status 1 instead of showing a traceback.
    """

    def __init__(self, message: str) -> None:
        # without the prefix, which an error has when it is unpickled or comes from a data worker
        self.message = " ".join(str(message).split()).rpartition(_PREFIX)[2]
        super().__init__(_PREFIX + self.message)


def flag_of(name: str, value: Any = True) -> str:
    """The command-line flag of a setting, with its value unless that is True.

    >>> flag_of("gau_key_size"), flag_of("gau_key_size", 64)
    ('--gau-key-size', '--gau-key-size 64')
    """
    flag = "--" + name.replace("_", "-")
    return flag if value is True else f"{flag} {value}"


def one_line(message: str, known: Sequence[str], words: Sequence[str] = ()) -> str:
    """Shorten argparse's error *message*; *known* are all flags, and *words* is the command line.

    >>> one_line("argument --norm/-n: invalid choice: 'rmss' (choose from 'layer', 'rms')", [])
    '--norm rmss: unknown; did you mean rms?'
    >>> one_line("unrecognized arguments: --beem 4", ["--beam", "--lenpen"])
    '--beem: unknown flag; did you mean --beam?'
    """
    of_flag = re.match(r"argument (\S+): (.*)$", message)
    if of_flag:
        name, what = of_flag.groups()
        flag = _given(name, words)
        choice = re.match(r"invalid choice: '?(.*?)'? \(choose from (.*)\)$", what)
        if choice:
            value, names = choice.groups()
            shown = value if name.isupper() else f"{flag} {value}"
            return f"{shown}: unknown" + near(value, re.findall(r"[\w.\-]+", names))
        invalid = re.match(r"(invalid \S+ value): '(.*)'$", what)
        if invalid:
            return f"{flag} {invalid[2] or repr(invalid[2])}: {invalid[1]}"
        return f"{flag}: {what}"
    missing = message.partition("the following arguments are required: ")[2]
    if missing:
        return f"{missing}: required"
    unknown = message.partition("unrecognized arguments: ")[2].split()
    if not unknown:
        return message
    flags = [word.partition("=")[0] for word in unknown if word.startswith("-")]
    if not flags:
        return f"{' '.join(unknown)}: unexpected; a value with spaces has to be quoted"
    return f"{flags[0]}: unknown flag" + near(flags[0], known, shown=0)


def near(value: str, known: Sequence[str], shown: int = 30) -> str:
    """Suggest the *known* names similar to *value*, else list all if there are at most *shown*."""
    nearest = difflib.get_close_matches(value, dict.fromkeys(known), n=3, cutoff=0.6)
    if nearest:
        return "; did you mean {}?".format(" or ".join(nearest))
    return "; known: " + ", ".join(known) if len(known) <= shown else ""


def flags_of_parser(parser: argparse.ArgumentParser) -> Sequence[str]:
    """All flags of *parser*."""
    return [name for action in parser._actions for name in action.option_strings]


def _given(flag: str, words: Sequence[str]) -> str:
    """Choose, from a *flag* such as ``--arch/-a``, the name that *words* use, else the longest."""
    names = flag.split("/")
    used = [name for name in names for word in words if word.partition("=")[0] == name]
    return max(used or names, key=lambda name: (name.startswith("--"), len(name)))


class OneLineParser(argparse.ArgumentParser):
    """A parser that raises :class:`UsageError` instead of printing its usage."""

    def error(self, message: str) -> NoReturn:
        """Raise :class:`UsageError` with a short form of *message*."""
        raise UsageError(one_line(message, flags_of_parser(self)))
