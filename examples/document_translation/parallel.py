"""Write parallel documents as two texts: a sentence a line, and a blank line after each document.

    parallel.py tsv news-commentary-v18.de-en.tsv.gz train.de train.en
    parallel.py tagged tags.en-de.en tags.en-de.de train.en train.de
    parallel.py folder documents train.en train.de

tsv: two columns, and lines without text between documents, as News Commentary is published.
tagged: a file for each language, in which <doc> begins a document, and sentences are in <seg> or on
lines without a tag, as in IWSLT's TED talks and WMT's test sets.
folder: two files for each document at any depth, with the endings of the two texts.
Pairs without text on a side are left out and counted.
"""

import gzip
import os
import re
import sys
from itertools import groupby
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Tuple
from xml.sax.saxutils import unescape

Lines = Tuple[str, str]  # a sentence and its translation
_SEGMENT = re.compile(r"<seg\b[^>]*>(.*)</seg>")
_DOCUMENT = re.compile(r"</?doc\b|<url\b", re.IGNORECASE)  # a talk of 2014 begins with its <url>
_QUOTES = {"&quot;": '"', "&apos;": "'"}  # entities beside &lt;, &gt; and &amp;


def lines_of(path: str) -> Iterator[str]:
    """The lines of a text, without their ends; of gzip, too."""
    opened: Callable[..., Any] = gzip.open if path.endswith(".gz") else open
    try:
        with opened(path, "rt", encoding="utf-8-sig", newline="\n") as stream:
            yield from (line.rstrip("\r\n") for line in stream)
    except (OSError, EOFError, UnicodeDecodeError) as error:
        sys.exit(f"{path}: cannot be read ({error})")


def between_none(items: Iterable[Any]) -> Iterator[List[Any]]:
    """Lists of the items between those that are None; no list is empty.

    >>> list(between_none([None, "a", "b", None, None, "c"]))
    [['a', 'b'], ['c']]
    """
    for is_none, some in groupby(items, key=lambda item: item is None):
        if not is_none:
            yield list(some)


def of_table(path: str) -> Iterator[List[Lines]]:
    """The documents of a table of two columns, with lines without text between them."""

    def pairs() -> Iterator[Optional[Lines]]:
        for number, line in enumerate(lines_of(path), 1):
            columns = [column.strip() for column in line.split("\t")]
            if any(columns) and len(columns) < 2:
                sys.exit(f"{path}: line {number}: has no tab; expected two columns")
            yield (columns[0], columns[1]) if any(columns) else None

    return between_none(pairs())


def of_tagged(*paths: str) -> Iterator[List[Lines]]:
    """The documents of two tagged files, which have as many documents, of as many sentences."""
    sides = [list(_tagged(path)) for path in paths]
    both = " and ".join(paths)
    if len(sides[0]) != len(sides[1]):
        counts = " and ".join(str(len(side)) for side in sides)
        sys.exit(f"{both} have different numbers of documents: {counts}")
    for number, (one, two) in enumerate(zip(*sides), 1):
        if len(one) != len(two):
            sys.exit(f"{both}: document {number} has {len(one)} and {len(two)} sentences")
        yield list(zip(one, two))


def _tagged(path: str) -> Iterator[List[str]]:
    def sentences() -> Iterator[Optional[str]]:
        for line in map(str.strip, lines_of(path)):
            found = _SEGMENT.search(line)
            if found:
                yield unescape(found.group(1).strip(), _QUOTES)
            elif _DOCUMENT.match(line):
                yield None
            elif line and not line.startswith("<"):
                yield unescape(line, _QUOTES)

    return between_none(sentences())


def of_folder(folder: str, source: str, target: str) -> Iterator[List[Lines]]:
    """The documents of a folder, two files each, with these endings."""
    found = sorted(map(str, Path(folder).rglob(f"*{source}")))
    if not found:
        sys.exit(f"{folder}: has no file that ends in {source}")
    for path in found:
        other = path[: len(path) - len(source)] + target
        one, two = ([line.strip() for line in lines_of(side)] for side in (path, other))
        if len(one) != len(two):
            sys.exit(f"{path} and {other} have {len(one)} and {len(two)} lines")
        yield [pair for pair in zip(one, two) if any(pair)]


def write(documents: Iterable[List[Lines]], outputs: List[str], subject: str) -> None:
    """Write the two texts, which appear when they are complete."""
    count = kept = incomplete = 0
    parts = [f"{path}.part" for path in outputs]
    with open(parts[0], "w", encoding="utf-8") as left, open(
        parts[1], "w", encoding="utf-8"
    ) as right:
        for document in documents:
            whole = [pair for pair in document if all(pair)]
            incomplete += len(document) - len(whole)
            if whole:
                for stream, side in zip((left, right), zip(*whole)):
                    stream.write("".join(line + "\n" for line in (*side, "")))
                count, kept = count + 1, kept + len(whole)
    if not count:
        sys.exit(f"{subject}: contains no document")
    for part, path in zip(parts, outputs):
        os.replace(part, path)
    print(
        f"{subject}: {count:,} documents, {kept:,} sentences; {incomplete:,} without text on a "
        "side were left out",
        file=sys.stderr,
    )


def main(words: List[str]) -> None:
    """Run the command line."""
    if len(words) < 4 or words[0] not in ("tsv", "tagged", "folder"):
        sys.exit(__doc__)
    form, *inputs, source, target = words
    if len(inputs) != (2 if form == "tagged" else 1):
        sys.exit(__doc__)
    read: Dict[str, Callable[..., Iterator[List[Lines]]]]
    read = {"tsv": of_table, "tagged": of_tagged, "folder": of_folder}
    endings = [Path(path).suffix for path in (source, target)] if form == "folder" else []
    write(read[form](*inputs, *endings), [source, target], inputs[0])


if __name__ == "__main__":
    main(sys.argv[1:])
