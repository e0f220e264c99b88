"""Convert a raw text to the form that prepare.sh expects: documents of lines.

    python documents.py [--wikitext] [--keep-case] INPUT OUTPUT

INPUT has one sentence or paragraph per line and blank lines between documents. OUTPUT is the same
in lower case, with exactly one blank line between documents. With --wikitext, INPUT is a file of
WikiText: a document starts at ` = Heading = ` (not at ` = = Subheading = = `), blank lines are
ignored, numbers and hyphenated words are joined (`role @-@ playing`), and `<unk>` becomes `unk`.
"""

import argparse
import re
import sys
from typing import Callable, Iterable, Iterator, List, Optional, Sequence

from text import atomic_writer, fail, read_lines

TITLE = re.compile(r"= (?!=)(.*[^=\s]) =")
HEADING = re.compile(r"(?:= )+(.*?)(?: =)+")


def by_blank_lines(lines: Iterable[str]) -> Iterator[List[str]]:
    """Yield the documents of a text, separated by blank lines."""
    document: List[str] = []
    for line in lines:
        if line.strip():
            document.append(line.strip())
        elif document:
            yield document
            document = []
    if document:
        yield document


def by_headings(lines: Iterable[str]) -> Iterator[List[str]]:
    """Yield the documents of WikiText, each with its title as the first line."""
    document: List[str] = []
    for line in map(str.strip, lines):
        if TITLE.fullmatch(line) and document:
            yield document
            document = []
        line = HEADING.sub(r"\1", line) if HEADING.fullmatch(line) else line
        if line:
            document.append(re.sub(r" @([-,.])@ ", r"\1", line).replace("<unk>", "unk"))
    if document:
        yield document


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--wikitext", action="store_true", help="INPUT is a file of WikiText")
    parser.add_argument("--keep-case", action="store_true", help="do not lower-case the text")
    parser.add_argument("input")
    parser.add_argument("output")
    args = parser.parse_args(argv)
    split = by_headings if args.wikitext else by_blank_lines
    write: Callable[[str], str] = str if args.keep_case else str.lower
    documents = lines = 0
    with atomic_writer(args.output) as stream:
        for document in split(read_lines(args.input)):
            stream.write("\n" * bool(documents) + "".join(write(line) + "\n" for line in document))
            documents, lines = documents + 1, lines + len(document)
        if not documents:
            fail(f"{args.input}: contains no text")
    print(f"{args.input}: {documents} documents, {lines} lines", file=sys.stderr)


if __name__ == "__main__":
    main()
