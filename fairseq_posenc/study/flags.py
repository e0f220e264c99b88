"""Flags of fairseq's commands as mappings; imports neither PyTorch nor fairseq."""

import re
import shlex
from typing import Any, Dict, List

from fairseq_posenc.basics.errors import UsageError

Flags = Dict[str, Any]  # "--flag": value, or True for a flag without one
DATA = "data"  # among the flags of a system: its own data folder


def merge(base: Flags, more: Flags) -> Flags:
    """The flags of *base*, changed by *more*, whose False drops a flag."""
    together = {**base, **more}
    return {flag: value for flag, value in together.items() if value is not False}


def words_of(flags: Flags) -> List[str]:
    """The words of flags on a command line.

    >>> words_of({"--lr": 0.5, "--fp16": True, "--no-save": False})
    ['--lr', '0.5', '--fp16']
    """
    words: List[str] = []
    for flag, value in flags.items():
        if value is not False and flag != DATA:
            words += [flag] if value is True else [flag, str(value)]
    return words


def parse_flags(text: str, where: str) -> Flags:
    """The flags of a command line.

    >>> parse_flags("--fp16 --lr 1e-3 --update-freq=2", "base")
    {'--fp16': True, '--lr': '1e-3', '--update-freq': '2'}

    Raises:
        UsageError: a word belongs to no flag, or a quotation mark is not closed.
    """
    flags: Flags = {}
    name = ""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"{where} {text}: {error}; close the quotes") from error
    for word in words:
        if re.match(r"--[a-z]", word):
            name, equals, value = word.partition("=")
            flags[name] = value if equals else True
        elif name and flags[name] is True:
            flags[name] = word
        else:
            raise UsageError(f"{where} {text}: {word} follows no flag; expected --flag value ...")
    return flags


def whole_number(flags: Flags, flag: str, where: str, default: int = 0) -> int:
    """The value of a flag that has to be a whole number above 0; of a list like ``[4]``, the first.

    Args:
        flags: flags with their values.
        flag: one of them.
        where: the key of the plan, for messages.
        default: the value where the flag is not given; without one, it has to be.

    Raises:
        UsageError: it is something else.
    """
    value = flags.get(flag, default or "nothing")
    first = str(value).strip("[]() ").split(",")[0].strip()
    if isinstance(value, bool) or not (first.isdecimal() and int(first)):
        raise UsageError(f"{where}: {flag} {value}: expected a whole number above 0")
    return int(first)
