"""Patterns over the layers of a stack: ``A*3,B`` stands for A, A, A, B, A, A, A, B and so on."""

import re
from itertools import groupby
from typing import Any, List, Sequence

from fairseq_posenc.basics.errors import UsageError, flag_of

_LONGEST = 10_000  # layers of a stack


def split_pattern(value: str, flag: str, example: str) -> List[str]:
    """One period of a pattern: items separated by commas; ``*N`` repeats an item N times.

    >>> split_pattern("rotary*3, none", "--position-encoding", "rotary*3,none")
    ['rotary', 'rotary', 'rotary', 'none']
    """
    period: List[str] = []
    for item in value.split(","):
        name, star, count = (part.strip() for part in item.partition("*"))
        if star and not (re.fullmatch(r"[0-9]{1,5}", count) and 1 <= int(count) <= _LONGEST):
            raise UsageError(
                f"{flag} {value}: {item.strip()!r} must have a number of layers from 1 to "
                f"{_LONGEST} after the *; for example {example}"
            )
        period += [name] * (int(count) if star else 1)
    return period


def numbers_by_layer(name: str, value: Any) -> List[float]:
    """One period of a pattern of numbers over the layers; a single number is such a pattern.

    >>> numbers_by_layer("rotary_base", "160000*2,10000")
    [160000.0, 160000.0, 10000.0]
    """
    flag = flag_of(name)
    period = split_pattern(str(value), flag, "160000*2,10000")
    try:
        return [float(part) for part in period]
    except ValueError as error:
        raise UsageError(
            f"{flag} {value}: must be a number, or a pattern of numbers over the layers such as "
            "160000*2,10000"
        ) from error


def pattern_of(values: Sequence[Any]) -> str:
    """The shortest pattern whose repetition gives the values of all layers.

    >>> pattern_of([8, 2, 2, 8, 2, 2, 8]), pattern_of([4, 4])
    ('8,2*2', '4')
    """
    lengths = range(1, len(values) + 1)
    fits = (n for n in lengths if all(x == values[i % n] for i, x in enumerate(values)))
    runs = [(value, len(list(run))) for value, run in groupby(values[: next(fits)])]
    return ",".join(str(value) if n == 1 else f"{value}*{n}" for value, n in runs)


def number_or_pattern(value: Any) -> Any:
    """The number that *value* stands for, or *value* itself if it is a pattern or not a number.

    >>> number_or_pattern("500"), number_or_pattern("500,10000")
    (500.0, '500,10000')
    """
    try:
        return float(value)
    except (TypeError, ValueError):
        return value
