"""Flags of fairseq's commands in the plan of a study."""

import re
import shlex
from typing import Any, Dict, List

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


def flag_texts(flags: Flags) -> List[str]:
    """Each flag with its value, as on a command line.

    >>> flag_texts({"--arch": "a b", "--norm-first": True, "--layers": 1, "--heads": False})
    ["--arch 'a b'", '--norm-first', '--layers 1', 'without --heads']

    Args:
        flags: values by flag; True for a flag without a value, False for one of the base that is
            dropped. ``data`` is the folder of a system with other data than the others.
    """
    return [_flag_text(flag, value) for flag, value in flags.items()]


def _flag_text(flag: str, value: Any) -> str:
    if value is False:
        return f"without {flag}"
    words = [DATA, str(value)] if flag == DATA else words_of({flag: value})
    return " ".join(map(shlex.quote, words))


def parse_flags(text: str) -> Flags:
    """The flags of a command line.

    >>> parse_flags("--fp16 --lr 1e-3 --update-freq=2")
    {'--fp16': True, '--lr': '1e-3', '--update-freq': '2'}

    Raises:
        ValueError: a word belongs to no flag, or a quotation mark is not closed.
    """
    flags: Flags = {}
    name = ""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ValueError(f"{error}; close the quotes") from error
    for word in words:
        if re.match(r"--[a-z]", word):
            name, equals, value = word.partition("=")
            flags[name] = value if equals else True
        elif name and flags[name] is True:
            flags[name] = word
        else:
            raise ValueError(f"{word} follows no flag; expected --flag value ...")
    return flags


def read_flags(value: Any) -> Flags:
    """Flags as a plan has them: a mapping, or the text of a command line.

    Raises:
        ValueError: naming what is no flag, or has a value that a flag cannot have.
    """
    if isinstance(value, str):
        return parse_flags(value)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError("expected flags, such as {--lr: 5e-4, --fp16: true}")
    found: Flags = {}
    for flag, setting in value.items():
        name, equals, rest = str(flag).partition("=")
        if not re.fullmatch(r"--[a-z][\w-]*", str(flag)):
            instead = f"{name}: {rest}" if equals else f"--{name.lstrip('-')}"
            raise ValueError(f"{flag}: is no flag; write {instead}")
        if isinstance(setting, (dict, list)) or setting is None:
            raise ValueError(f"{flag}: expected a text, a number, true or false")
        found[str(flag)] = setting if isinstance(setting, bool) else str(setting)
    return found
