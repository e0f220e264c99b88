"""Tables in Markdown and in plain text."""

from typing import Any, Iterable, List, Mapping, Sequence, Tuple

Column = Tuple[str, str, str]  # title, key of the value, format


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> List[str]:
    """The lines of a table in Markdown.

    >>> print("\\n".join(markdown_table(["model", "BLEU"], [["stock", "29.3"]])))
    | model | BLEU |
    | --- | --- |
    | stock | 29.3 |
    """
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(cells) + " |" for cells in lines]


def plain_table(rows: Sequence[Mapping[str, Any]], columns: Sequence[Column]) -> str:
    """Rows as plain text; a column that no row has a value for is left out.

    >>> rows = [{"a": "x", "b": 1.0, "c": None}, {"a": "long", "b": 12.0, "c": None}]
    >>> print(plain_table(rows, [("name", "a", ""), ("ms", "b", ".1f"), ("MiB", "c", ".0f")]))
    name    ms
    x      1.0
    long  12.0
    """
    columns = [c for c in columns if any(row.get(c[1]) is not None for row in rows)]
    aligned = []
    for title, name, form in columns:
        values = [row[name] for row in rows]
        cells = [title, *("-" if value is None else format(value, form) for value in values)]
        width = max(map(len, cells))
        text = any(isinstance(value, str) for value in values)
        aligned.append([cell.ljust(width) if text else cell.rjust(width) for cell in cells])
    return "\n".join("  ".join(cells).rstrip() for cells in zip(*aligned))
