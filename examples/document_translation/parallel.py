"""Write parallel documents as two texts: one sentence per line, a blank line after each document.

    parallel.py tsv news-commentary-v18.de-en.tsv.gz train.de train.en
    parallel.py tagged tags.en-de.en tags.en-de.de train.en train.de
    parallel.py folder documents train.en train.de

tsv: two columns, and lines without text between documents, as News Commentary is published.
tagged: a file for each language, in which <doc> begins a document, and sentences are in <seg> or on
lines without a tag, as in IWSLT's TED talks and WMT's test sets.
folder: two files for each document, at any depth, with the suffixes of the two output texts.
Pairs without text on a side are left out and counted.
"""

import gzip
import os
import re
import sys
from itertools import groupby, zip_longest
from pathlib import Path
from typing import Any, Iterable, Iterator, List, Optional, Tuple
from xml.sax.saxutils import unescape

Lines = Tuple[str, str]  # a sentence and its translation
_SEGMENT = re.compile(r"<seg\b[^>]*>(.*)</seg>")
_DOCUMENT = re.compile(r"</?doc\b|<url\b", re.IGNORECASE)  # a talk of 2014 begins with its <url>
_QUOTES = {"&quot;": '"', "&apos;": "'"}  # entities besides &lt;, &gt; and &amp;


def lines_of(path: str) -> Iterator[str]:
    """The lines of a text, which may be compressed by gzip, without line ends."""
    opened: Any = gzip.open if path.endswith(".gz") else open
    try:
        with opened(path, "rt", encoding="utf-8-sig", newline="\n") as stream:
            yield from (line.rstrip("\r\n") for line in stream)
    except (OSError, EOFError, UnicodeDecodeError) as error:
        sys.exit(f"{path}: cannot be read ({error})")


def between_none(items: Iterable[Any]) -> Iterator[List[Any]]:
    """Split items at each None into lists; empty lists are left out."""
    for is_none, some in groupby(items, key=lambda item: item is None):
        if not is_none:
            yield list(some)


def of_table(path: str) -> Iterator[List[Lines]]:
    """The documents of a table with two columns; lines without text separate documents."""

    def pairs() -> Iterator[Optional[Lines]]:
        for number, line in enumerate(lines_of(path), 1):
            columns = [column.strip() for column in line.split("\t")]
            if any(columns) and len(columns) < 2:
                sys.exit(f"{path}: line {number}: has no tab; expected two columns")
            yield (columns[0], columns[1]) if any(columns) else None

    return between_none(pairs())


def of_tagged(*paths: str) -> Iterator[List[Lines]]:
    """The documents of two tagged files, with equal numbers of documents and sentences."""
    sides = [list(_tagged(path)) for path in paths]
    for number, (one, two) in enumerate(zip_longest(*sides, fillvalue=()), 1):
        if len(one) != len(two):
            counts = f"{len(one)} and {len(two)} sentences"
            sys.exit(f"{' and '.join(paths)}: document {number} has {counts}")
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
    """The documents of a folder: two files each, with the suffixes *source* and *target*."""
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
    """Write the two texts; the files appear once they are complete."""
    count = kept = incomplete = 0
    streams = [open(f"{path}.part", "w", encoding="utf-8") for path in outputs]
    for document in documents:
        whole = [pair for pair in document if all(pair)]
        incomplete += len(document) - len(whole)
        for stream, side in zip(streams, zip(*whole)):
            stream.write("".join(line + "\n" for line in (*side, "")))
        count, kept = count + bool(whole), kept + len(whole)
    if not count:
        sys.exit(f"{subject}: contains no document")
    for stream, path in zip(streams, outputs):
        stream.close()
        os.replace(stream.name, path)
    print(f"{subject}: {count} documents, {kept} sentences; left out {incomplete}", file=sys.stderr)


def main(words: List[str]) -> None:
    """Run the command line."""
    inputs, outputs, form = words[1:-2], words[-2:], words[0] if words else ""
    if form == "tsv" and len(inputs) == 1:
        found = of_table(*inputs)
    elif form == "tagged" and len(inputs) == 2:
        found = of_tagged(*inputs)
    elif form == "folder" and len(inputs) == 1:
        found = of_folder(*inputs, *(Path(path).suffix for path in outputs))
    else:
        sys.exit(__doc__)
    write(found, outputs, inputs[0])


if __name__ == "__main__":
    main(sys.argv[1:])
