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
    text = f"p {text}" if text.startswith("<") else f"p = {text}"
    return text.replace(" ", "\N{NO-BREAK SPACE}")


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
    counts = sorted({summary.seeds for summary in comparison.summaries.values()})
    return plural(counts[0], "seed") if len(counts) == 1 else f"{counts[0]} to {counts[-1]} seeds"


def against(comparison: Comparison, system: str) -> List[str]:
    """What can be said of *system* compared with all others, best first.

    Args:
        comparison: of all systems on one measure.
        system: one of them.

    Returns:
        parts of a sentence: than which it is better, worse, and from which it is not separable.
    """
    told = []
    for words, relation in (("better than", 1), ("worse than", -1)):
        listed = [
            f"{name} ({equation(comparison.differences[system, name].adjusted)})"
            for name in _related(comparison, system, relation)
        ]
        if listed:
            told.append(f"{words} {names(listed)}")
    same = _related(comparison, system, 0)
    if same:
        told.append(f"not separable with {seeds_of(comparison)} from {names(same)}")
    return told


def _related(comparison: Comparison, system: str, relation: int) -> List[str]:
    """The others than which *system* is better (1), worse (-1), or neither (0)."""
    others = (name for name in comparison.order if name != system)
    return [name for name in others if comparison.relation(system, name) == relation]


def capitalised(text: str) -> str:
    """The text with a capital at its beginning, unless its first word is a name.

    >>> capitalised("validation loss"), capitalised("chrF2")
    ('Validation loss', 'chrF2')
    """
    first = text.partition(" ")[0]
    return text[:1].upper() + text[1:] if first.islower() else text


def details(comparison: Comparison, baseline: str) -> List[str]:
    """The best system and the baseline against all others, with p-values.

    Args:
        comparison: of all systems on one measure.
        baseline: the system that the others are compared with.

    Returns:
        nothing without a test.
    """
    chosen = dict.fromkeys(name for name in (comparison.order[0], baseline))
    return [
        f"{name} is {'; '.join(against(comparison, name))}."
        for name in chosen
        if comparison.tested and name in comparison.summaries
    ]


def verdict(comparison: Comparison, measure: Measure, baseline: str) -> str:
    """The outcome of one measure in a few sentences.

    Args:
        comparison: of all systems.
        measure: what was measured.
        baseline: the system that the others are compared with.
    """
    best = comparison.order[0]
    summary = comparison.summaries[best]
    told = [
        f"{capitalised(measure.label)} ({measure.better} is better): {best} has the best mean, "
        f"{spread(summary)} ({plural(summary.seeds, 'seed')})."
    ]
    if len(comparison.order) < 2:
        return told[0]
    if not comparison.tested:
        told.append(
            "With one seed it cannot be told whether the systems differ or the seeds: "
            "repeat with two or more."
        )
        return " ".join(told)
    same, worse, better = (_related(comparison, best, relation) for relation in (0, -1, 1))
    if same:
        told.append(f"Not separable from it with {seeds_of(comparison)}: {names(same)}.")
    if worse:  # it lacks the seeds with which scores are worse
        told.append(f"Better than it with the same seeds: {names(worse)}.")
    if better:
        rest = f"the other {len(better)}" if same or worse else "all others"
        told.append(f"It is better than {rest}.")
    if baseline in comparison.summaries and baseline != best:
        told.append(
            f"Compared with the baseline, {baseline}, better: "
            f"{names(_related(comparison, baseline, -1)) or 'no system'}; worse: "
            f"{names(_related(comparison, baseline, 1)) or 'no system'}; the others: not separable."
        )
    return " ".join(told)
