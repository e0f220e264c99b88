"""Tables in Markdown."""

from typing import Iterable, List, Sequence


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> List[str]:
    """The lines of a table in Markdown.

    >>> print("\\n".join(markdown_table(["model", "BLEU"], [["stock", "29.3"]])))
    | model | BLEU |
    | --- | --- |
    | stock | 29.3 |
    """
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(cells) + " |" for cells in lines]
