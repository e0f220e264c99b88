"""The parts of a report and the words for numbers, alike for HTML and Markdown.

Each part has a ``kind``: the name of the macro that renders it in either template.
"""

import math
from typing import Any, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from fairseq_posenc.study.results import Measure
from fairseq_posenc.study.statistics import Comparison, Summary, summarise


class Prose(NamedTuple):
    """A paragraph of plain text."""

    text: str
    kind: str = "prose"


class Heading(NamedTuple):
    """The title of the parts that follow, one level below the section's title."""

    text: str
    kind: str = "heading"


class Points(NamedTuple):
    """A list of plain texts."""

    items: Sequence[str]
    kind: str = "points"


class Table(NamedTuple):
    """A table, whose first column names its rows."""

    caption: str  # a sentence, or several
    header: Sequence[str]  # the titles of the columns
    rows: Sequence[Sequence[str]]  # cells of plain text, as many in each row as in the header
    # columns of text, aligned to the left; all others are numbers. The first is text.
    text: Sequence[int] = ()
    code: Sequence[int] = ()  # columns of code, empty cells included
    wrap: Sequence[int] = ()  # columns whose cells may take several lines
    strong: Sequence[Tuple[int, int]] = ()  # cells to emphasise, by row and column
    kind: str = "table"


class Figure(NamedTuple):
    """A drawing."""

    name: str  # name of its file, without the suffix
    caption: str  # what it shows, also for readers who cannot see it
    svg: str  # an SVG file with the colours of paper
    # the drawing for a phone, where one drawing does not suit all widths
    narrow: Optional[str] = None
    # whether its colours may follow those of the page; else it is on a light card
    themed: bool = True
    kind: str = "figure"


class Listing(NamedTuple):
    """Text with its line breaks, such as commands."""

    text: str
    kind: str = "listing"


class Details(NamedTuple):
    """Parts that a reader opens on demand; printed in full."""

    title: str
    parts: Sequence[Any]
    kind: str = "details"


class Section(NamedTuple):
    """A section of the report; left out if it has no parts."""

    title: str  # the heading
    parts: List[Any]  # what it consists of

    @property
    def anchor(self) -> str:
        """Its name in links."""
        return "-".join("".join(c if c.isalnum() else " " for c in self.title.lower()).split())


class Report(NamedTuple):
    """A whole report."""

    title: str  # the heading
    summary: Sequence[str]  # sentences for a reader in a hurry
    sections: Sequence[Section]  # in order; those without parts are left out


def number(value: Optional[float], like: Optional[float] = None) -> str:
    """A number with four significant digits, with no more than four decimals.

    >>> number(34.2164), number(0.01, like=34.2), number(1523.4), number(None)
    ('34.22', '0.01', '1523', '–')

    Args:
        like: a number whose decimals are taken over; *value* itself by default.
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


def table_of_means(
    caption: str, header: Sequence[str], values: Mapping[str, Sequence[Sequence[float]]]
) -> Table:
    """A table of means ± standard deviations over the seeds.

    Args:
        header: the titles of the columns after the first, which names the systems.
        values: by system, for each column: a value for each seed that has one.
    """
    rows = [
        [name, *(spread(summarise(found) if found else None) for found in columns)]
        for name, columns in values.items()
    ]
    return Table(caption, ["system", *header], rows)


def p_value(p: Optional[float]) -> str:
    """A p-value of a table.

    >>> p_value(0.0123), p_value(0.00001), p_value(None)
    ('0.012', '< 0.001', '–')
    """
    if p is None:
        return "–"
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


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
    return seed_counts(summary.seeds for summary in comparison.summaries.values())


def seed_counts(counts: Iterable[int]) -> str:
    """Numbers of seeds in words.

    >>> seed_counts([3, 3]), seed_counts([3, 1, 2])
    ('3 seeds', '1 to 3 seeds')
    """
    known = sorted(set(counts))
    return plural(known[0], "seed") if len(known) == 1 else f"{known[0]} to {known[-1]} seeds"


def capitalised(text: str) -> str:
    """The text with a capital at its beginning, unless its first word is a name.

    >>> capitalised("validation loss"), capitalised("chrF2")
    ('Validation loss', 'chrF2')
    """
    first = text.partition(" ")[0]
    return text[:1].upper() + text[1:] if first.islower() else text


def best_of(comparison: Comparison) -> List[str]:
    """The systems whose mean, rounded as the report shows it, equals the best mean."""
    means = {name: number(comparison.summaries[name].mean) for name in comparison.order}
    return [name for name in comparison.order if means[name] == means[comparison.order[0]]]


def verdict(comparison: Comparison, measure: Measure, baseline: str) -> str:
    """The best system on one measure, and which others are separable from it and from the baseline.

    Args:
        baseline: the system that the others are compared with.
    """
    best, *ties = best_of(comparison)
    summary = comparison.summaries[best]
    seeds = seeds_of(comparison)
    who = f"{names([best, *ties])} share" if ties else f"{best} has"
    mean = number(summary.mean) if ties else spread(summary)
    told = [
        f"{capitalised(measure.label)} ({measure.better} is better): {who} the best mean, {mean} "
        f"({seeds if ties else plural(summary.seeds, 'seed')})."
    ]
    if len(comparison.order) > 1 and not comparison.tested:
        told.append(
            "With one seed it cannot be told whether the systems differ or the seeds: "
            "repeat with two or more."
        )
    if comparison.tested:
        it = best if ties else "it"
        relations = [
            (f"Not separable from {it} with {seeds}", best, 0),
            # a system can be better where the best mean lacks the seeds with worse scores
            (f"Better than {it} with the same seeds", best, -1),
            (f"Worse than {it}", best, 1),
        ]
        if best != baseline:
            relations += [
                (f"Better than the baseline, {baseline}", baseline, -1),
                (f"Worse than the baseline, {baseline}", baseline, 1),
            ]
        told += [_related(comparison, *relation) for relation in relations]
    return " ".join(filter(None, told))


def _related(comparison: Comparison, title: str, system: str, relation: int) -> str:
    """A sentence on the systems that *system* is better (1), worse (-1) or inseparable (0) from."""
    if system not in comparison.summaries:
        return ""
    others = [name for name in comparison.order if name != system]
    found = [name for name in others if comparison.relation(system, name) == relation]
    if not found:
        return ""
    listed = f"all {len(others)} others" if len(found) == len(others) > 3 else names(found)
    if not relation or len(comparison.order) == 2:  # the test of two systems is that of the pair
        return f"{title}: {listed}."
    pairs = [name for name in found if comparison.differences[system, name].holds_alone]
    alone = names(pairs) if len(pairs) < len(found) else "all of them"
    return f"{title}: {listed} (for the pair alone: {alone or 'none'})."
