"""Flags of fairseq's commands, as reports show them."""

import shlex
from typing import Any, Dict, List

Flags = Dict[str, Any]  # "--flag": value, or True for a flag without one
DATA = "data"  # among the flags of a system: its own data folder


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
