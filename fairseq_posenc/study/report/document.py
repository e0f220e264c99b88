"""The parts of a report, independent of whether they become HTML or Markdown.

Each part has a ``kind``: the name of the macro that renders it in either template.
"""

from typing import Any, List, NamedTuple, Optional, Sequence, Tuple


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
    """A table, whose first column names its rows.

    Args:
        caption: a sentence, or several.
        header: the titles of the columns.
        rows: cells of plain text, as many in each row as in the header.
        text: columns of text, aligned to the left; all others are numbers. The first is text.
        code: columns of code, empty cells included.
        wrap: columns whose cells may take several lines.
        strong: cells to emphasise, by row and column.
    """

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    text: Sequence[int] = ()
    code: Sequence[int] = ()
    wrap: Sequence[int] = ()
    strong: Sequence[Tuple[int, int]] = ()
    kind: str = "table"


class Figure(NamedTuple):
    """A drawing.

    Args:
        name: name of its file, without the suffix.
        caption: what it shows, also for readers who cannot see it.
        svg: an SVG file with the colours of paper.
        narrow: the drawing for a phone, where one drawing does not suit all widths.
        themed: whether its colours may follow those of the page; else it is on a light card.
    """

    name: str
    caption: str
    svg: str
    narrow: Optional[str] = None
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
    """A section of the report; left out if it has no parts.

    Args:
        title: its heading.
        parts: what it consists of.
    """

    title: str
    parts: List[Any]

    @property
    def anchor(self) -> str:
        """Its name in links."""
        return "-".join("".join(c if c.isalnum() else " " for c in self.title.lower()).split())


class Report(NamedTuple):
    """A whole report.

    Args:
        title: its heading.
        summary: sentences for a reader in a hurry.
        sections: in order; those without parts are left out.
    """

    title: str
    summary: Sequence[str]
    sections: Sequence[Section]
