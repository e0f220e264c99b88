"""Parallel documents as they are published: tables, tagged files, and folders of files."""

import os
import re
import sys
from typing import Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple
from xml.sax.saxutils import unescape

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.lines import between_none, read_lines, read_pairs, write_texts

Lines = Tuple[str, str]  # a sentence and its translation, as text
_SEGMENT = re.compile(r"<seg\b[^>]*>(.*)</seg>")
_DOCUMENT = re.compile(r"</?doc\b|<url\b", re.IGNORECASE)  # a talk of 2014 begins with its <url>
_QUOTES = {"&quot;": '"', "&apos;": "'"}  # entities beside &lt;, &gt; and &amp;


def of_table(path: str) -> Iterator[List[Lines]]:
    """The documents of a table of two columns, with lines without text between them."""

    def pairs() -> Iterator[Optional[Lines]]:
        for number, line in enumerate(read_lines(path), 1):
            columns = line.split("\t")
            if not line.strip():
                yield None
            elif len(columns) < 2:
                raise UsageError(f"{path}: line {number}: has no tab; expected two columns")
            else:
                yield columns[0].strip(), columns[1].strip()

    return between_none(pairs())


def of_tagged(source: str, target: str) -> Iterator[List[Lines]]:
    """The documents of two tagged files; see :func:`_tagged`.

    Raises:
        UsageError: they have different numbers of documents, or of sentences in one.
    """
    sides = [list(_tagged(path)) for path in (source, target)]
    if len(sides[0]) != len(sides[1]):
        raise UsageError(
            f"{source} and {target} have different numbers of documents: {len(sides[0])} and "
            f"{len(sides[1])}"
        )
    for number, (one, two) in enumerate(zip(*sides), 1):
        if len(one) != len(two):
            raise UsageError(
                f"{source} and {target}: document {number} has {len(one)} and {len(two)} sentences"
            )
        yield list(zip(one, two))


def _tagged(path: str) -> Iterator[List[str]]:
    """The sentences of each document: what is in <seg>, and lines that do not begin with a tag."""

    def sentences() -> Iterator[Optional[str]]:
        for line in map(str.strip, read_lines(path)):
            found = _SEGMENT.search(line)
            if found:
                yield unescape(found.group(1).strip(), _QUOTES)
            elif _DOCUMENT.match(line):
                yield None
            elif line and not line.startswith("<"):
                yield unescape(line, _QUOTES)

    return between_none(sentences())


def of_folder(folder: str, source: str, target: str) -> Iterator[List[Lines]]:
    """The documents of a folder, two files each, by their names.

    Args:
        source: ending of the files in the source language.
        target: ending of the others.

    Raises:
        UsageError: a file has no partner, or there is none.
    """
    places = (os.path.join(at, name) for at, _, names in os.walk(folder) for name in names)
    found = sorted(path for path in places if path.endswith(f".{source}"))
    if not found:
        raise UsageError(f"{folder}: has no file that ends in .{source}")
    for path in found:
        other = path[: len(path) - len(source)] + target
        if not os.path.isfile(other):
            raise UsageError(f"{other}: no such file, beside {path}")
        pairs = list(read_pairs(path, other))
        yield [(one.strip(), two.strip()) for one, two in pairs if one.strip() or two.strip()]


class Format(NamedTuple):
    """A form in which documents are published."""

    read: Callable[..., Iterator[List[Lines]]]  # given the inputs, and perhaps languages
    inputs: int  # the number of files or folders
    needs_languages: bool = False


#: The forms by name.
FORMATS: Dict[str, Format] = {
    "tsv": Format(of_table, 1),
    "tagged": Format(of_tagged, 2),
    "folder": Format(of_folder, 1, True),
}


def write_parallel(documents: Iterable[List[Lines]], outputs: Sequence[str], subject: str) -> None:
    """Write documents as two texts with a blank line after each document.

    Args:
        outputs: the files of the source and of the target.
        subject: where the documents come from, in messages.

    Raises:
        UsageError: there is no document.
    """
    count = kept = incomplete = 0
    with write_texts(outputs) as (left, right):
        for document in documents:
            whole = [pair for pair in document if all(pair)]
            incomplete += len(document) - len(whole)
            if whole:
                for stream, side in zip((left, right), zip(*whole)):
                    stream.write("".join(line + "\n" for line in (*side, "")))
                count, kept = count + 1, kept + len(whole)
        if not count:
            raise UsageError(f"{subject}: contains no document")
    print(
        f"{subject}: {count:,} documents, {kept:,} sentences; {incomplete:,} without text on a "
        "side were left out",
        file=sys.stderr,
    )
