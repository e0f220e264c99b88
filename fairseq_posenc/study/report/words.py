"""Numbers and verdicts in words."""

import math
from typing import List, Optional, Sequence

from fairseq_posenc.study.results import Measure
from fairseq_posenc.study.statistics import Comparison, Summary


def number(value: Optional[float], like: Optional[float] = None) -> str:
    """A number with four significant digits, with no more than four decimals.

    >>> number(34.2164), number(0.01, like=34.2), number(1523.4), number(None)
    ('34.22', '0.01', '1523', '–')

    Args:
        value: the number.
        like: the number whose decimals it has; its own by default.
    """
    if value is None:
        return "–"
    if not math.isfinite(value):
        return "∞" if value > 0 else "not a number"
    size = abs(value if like is None else like)
    digits = 4 if size < 1 else max(0, 3 - int(math.log10(size)))
    return f"{value:.{digits}f}".replace("-", "−")


def signed(value: float, like: float) -> str:
    """A difference with its sign and the decimals of *like*."""
    text = number(value, like)
    return text if text.startswith("−") else f"+{text}"


def spread(summary: Optional[Summary]) -> str:
    """Mean ± standard deviation."""
    if summary is None:
        return "–"
    mean = number(summary.mean)
    return mean if summary.sd is None else f"{mean} ± {number(summary.sd, summary.mean)}"


def p_value(p: Optional[float]) -> str:
    """A p-value of a table.

    >>> p_value(0.0123), p_value(0.00001), p_value(None)
    ('0.012', '< 0.001', '–')
    """
    if p is None:
        return "–"
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def equation(p: Optional[float]) -> str:
    """A p-value of a sentence, such as ``p = 0.012``."""
    text = p_value(p)
    return f"p {text}" if text.startswith("<") else f"p = {text}"


def names(items: Sequence[str]) -> str:
    """A list of words.

    >>> names(["a"]), names(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return " and ".join(filter(None, [", ".join(items[:-1]), *items[-1:]]))


def plural(count: int, noun: str) -> str:
    """A number of things.

    >>> plural(1, "seed"), plural(3, "seed")
    ('1 seed', '3 seeds')
    """
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def seeds_of(comparison: Comparison) -> str:
    """How many seeds a comparison rests on."""
    counts = {summary.seeds for summary in comparison.summaries.values()}
    least, most = min(counts), max(counts)
    return plural(most, "seed") if least == most else f"{least} to {most} seeds"


def against(comparison: Comparison, system: str) -> List[str]:
    """What can be said of *system* compared with all others, best first.

    Args:
        comparison: of all systems on one measure.
        system: one of them.

    Returns:
        sentences without the name of *system*.
    """
    others = [name for name in comparison.order if name != system]
    place = comparison.order.index(system)
    above, below = set(comparison.order[:place]), set(comparison.order[place + 1 :])
    separable = [name for name in others if comparison.differences[system, name].separable]
    same = [name for name in others if name not in separable]
    told = []
    for verdict, side in (("Better than", below), ("Worse than", above)):
        listed = [
            f"{name} ({equation(comparison.differences[system, name].adjusted)})"
            for name in separable
            if name in side
        ]
        if listed:
            told.append(f"{verdict} {names(listed)}.")
    if same:
        told.append(f"Not separable with {seeds_of(comparison)} from {names(same)}.")
    return told


def verdict(comparison: Comparison, measure: Measure, baseline: str) -> str:
    """The outcome of one measure in a few sentences.

    Args:
        comparison: of all systems.
        measure: what was measured.
        baseline: the system that the others are compared with.
    """
    best = comparison.order[0]
    summary = comparison.summaries[best]
    direction = "higher" if measure.better == "higher" else "lower"
    told = [
        f"{measure.label} ({direction} is better): {best} has the best mean, {spread(summary)} "
        f"({plural(summary.seeds, 'seed')})."
    ]
    if len(comparison.order) < 2:
        return told[0]
    if not comparison.tested:
        told.append(
            "With one seed it cannot be told whether the systems differ or the seeds: "
            "repeat with two or more."
        )
        return " ".join(told)
    told += against(comparison, best)
    if baseline in comparison.summaries and baseline != best:
        told.append(f"The baseline, {baseline}:")
        told += [sentence[0].lower() + sentence[1:] for sentence in against(comparison, baseline)]
    return " ".join(told)
