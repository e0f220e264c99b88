"""Values of flags in the command lines of runs."""

import shlex
from typing import List, Sequence


def values_of(commands: Sequence[str], flag: str) -> List[str]:
    """The values of a flag, in the order of the commands.

    >>> values_of(["train --seed 1 --arch 'a b'", "generate --beam 4"], "--arch")
    ['a b']

    Args:
        commands: command lines, as for a shell.
        flag: such as ``--beam``.
    """
    found = []
    for command in commands:
        words = shlex.split(command)
        found += [value for word, value in zip(words, words[1:]) if word == flag]
    return found
