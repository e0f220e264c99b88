"""Lengths as a user writes them: single ones and ranges, such as ``1-20,30`` or ``1-19:2``."""

import re
from typing import Set, Tuple

_MOST = 100_000  # the longest input that can be meant
_PART = re.compile(r"\s*(\d{1,6})(?:-(\d{1,6})(?::(\d{1,6}))?)?\s*", re.ASCII)


def read_lengths(text: str) -> Tuple[int, ...]:
    """The lengths that a text names, in increasing order.

    >>> read_lengths("1-3,8"), read_lengths("1-6:2")
    ((1, 2, 3, 8), (1, 3, 5))

    Raises:
        ValueError: the text is not such a list.
    """
    found: Set[int] = set()
    for part in text.split(","):
        match = _PART.fullmatch(part)
        first, last, step = match.groups() if match else ("0", None, None)
        lengths = range(int(first), int(last or first) + 1, max(1, int(step or 1)))
        if not lengths or not lengths[0] or lengths[-1] > _MOST or step == "0":
            raise ValueError(f"expected lengths from 1 to {_MOST:,}, such as 1-20,30 or 1-19:2")
        found.update(lengths)
    return tuple(sorted(found))
