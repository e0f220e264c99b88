"""Print the documents of a text: stripped lines, with an empty line between documents.

    python documents.py [--wikitext] [--articles] [--lowercase] FILE >OUT

A .jsonl FILE has one document per line, as {"text": ...}; in other files, blank lines separate
documents. With --wikitext, FILE is WikiText: its articles become documents, without the "=" around
headings and the "@" in @-@, @,@ and @.@. --articles does the same, with one line per article.
"""

import argparse
import json
import re
import sys
from typing import Iterator

TITLE = re.compile(r"= (?!=).*[^=\s] =")
HEADING = re.compile(r"(?:= )+(.*?)(?: =)+")


def plain(line: str) -> str:
    """A line of WikiText without "=" around headings, and with "-" for " @-@ " and so on."""
    line = HEADING.sub(r"\1", line) if HEADING.fullmatch(line) else line
    return re.sub(r" @([-,.])@ ", r"\1", line).replace("<unk>", "unk")


def lines_of(path: str, wikitext: bool) -> Iterator[str]:
    """The lines of the documents in a file, with blank lines between documents."""
    with open(path, encoding="utf-8", newline="\n") as file:
        for line in file:
            if path.endswith(".jsonl"):
                yield from (one for one in json.loads(line)["text"].split("\n") if one.strip())
                yield ""
            elif wikitext:
                if TITLE.fullmatch(line.strip()):
                    yield ""
                if line.strip():
                    yield plain(line.strip())
            else:
                yield line


def main() -> None:
    """Print the documents."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file")
    for flag in ("--wikitext", "--articles", "--lowercase"):
        parser.add_argument(flag, action="store_true")
    args = parser.parse_args()
    sys.stdout.reconfigure(encoding="utf-8", newline="\n")  # type: ignore[union-attr]
    within, between = (" ", "\n") if args.articles else ("\n", "\n\n")
    before = ""
    for line in map(str.strip, lines_of(args.file, args.wikitext or args.articles)):
        if line:
            print(before, line.lower() if args.lowercase else line, sep="", end="")
            before = within
        elif before:
            before = between
    ends = before == between and args.file.endswith(".jsonl")
    print(end=between if ends else "\n" if before else "")


if __name__ == "__main__":
    main()
