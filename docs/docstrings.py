"""Converts the reStructuredText and the examples of docstrings to Markdown for the API pages."""

import re
from typing import Any, List

import griffe

ROLE = re.compile(r":(?:attr|class|data|func|meth|mod):`~?([^`]+)`")
BORDER = r"^ *=+(?: +=+)+$"
TABLE = re.compile(rf"({BORDER})\n((?:.+\n)+?){BORDER}\n((?:.+\n)+?){BORDER}", re.MULTILINE)

EXAMPLE = re.compile(r"(?:^ *>>> .*\n?(?:^ *\S.*\n?)*)+", re.MULTILINE)


def fenced(found: "re.Match[str]") -> str:
    """A fenced code block with the example and its output up to the next empty line."""
    indent = re.match(" *", found[0])[0]
    return f"\n{indent}```pycon\n{found[0].rstrip()}\n{indent}```\n"


def markdown_table(found: "re.Match[str]") -> str:
    """A reStructuredText table in Markdown; a line with no first cell continues the row above."""
    starts = [column.start() for column in re.finditer("=+", found[1])]
    rows: List[List[str]] = []
    for line in (found[2] + found[3]).splitlines():
        cells = [line[i:j].strip() for i, j in zip(starts, [*starts[1:], None])]
        if rows and not cells[0]:
            rows[-1] = [f"{above} {cell}".strip() for above, cell in zip(rows[-1], cells)]
        else:
            rows.append(cells)
    rows.insert(1, ["---"] * len(starts))
    return "\n".join("| " + " | ".join(cells) + " |" for cells in rows)


class Markdown(griffe.Extension):
    """Rewrites roles, tables and examples in the docstring of every object."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Rewrite the docstring of an object in place."""
        if obj.docstring is not None:
            text = TABLE.sub(markdown_table, obj.docstring.value)
            obj.docstring.value = ROLE.sub(r"`\1`", EXAMPLE.sub(fenced, text))
