"""Compact letter displays: which of several systems are separable, as a column of a table."""

from itertools import combinations
from typing import Dict, Mapping, Sequence, Tuple

Pair = Tuple[str, str]


def compact_letters(order: Sequence[str], separable: Mapping[Pair, bool]) -> Dict[str, str]:
    """Compact letter display by insertion and absorption (Piepho 2004).

    >>> compact_letters("xyz", {("x", "z"): True})
    {'x': 'a', 'y': 'ab', 'z': 'b'}

    Args:
        order: systems, in the order in which letters are given out.
        separable: whether two systems differ, by pair in either order; pairs left out do not.

    Returns:
        letters such that two systems share one if and only if they are not separable.
    """
    groups = [frozenset(order)]
    for first, second in combinations(order, 2):
        if not (separable.get((first, second)) or separable.get((second, first))):
            continue
        split = [group for group in groups if not {first, second} <= group]
        for group in groups:
            if {first, second} <= group:
                split += [group - {first}, group - {second}]
        unique = list(dict.fromkeys(split))
        groups = [group for group in unique if not any(group < other for other in unique)]
    groups.sort(key=lambda group: [name not in group for name in order])
    return {
        name: "".join(_letter(i) for i, group in enumerate(groups) if name in group)
        for name in order
    }


def _letter(number: int) -> str:
    """a to z, A to Z, then a1, b1 and so on."""
    alphabet = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    turn, place = divmod(number, len(alphabet))
    return alphabet[place] + (str(turn) if turn else "")
