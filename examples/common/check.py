"""Check texts, and refuse a text if later steps would silently lose lines of it.

    python check.py texts FILE...             each file is UTF-8, not compressed, not empty
    python check.py pairs SOURCE TARGET       the same, and the files have equally many lines
    python check.py lengths MOST FILE...      no line has more than MOST tokens
    python check.py vocabulary DICT FILE...   DICT, a dict.txt, has 95 % of each file's tokens

The first fault is reported with its file and line, and the exit status is 1.
"""

import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from typing import Iterator

COMPRESSED = {
    "gunzip": b"\x1f\x8b",
    "bunzip2": b"BZh",
    "unxz": b"\xfd7zXZ",
    "unzstd": b"\x28\xb5\x2f\xfd",
    "unzip": b"PK\x03\x04",
}
MOST_UNKNOWN = 0.05  # share of the tokens; it reaches 0.03 with subwords learned from little text


def lines_of(path: str) -> Iterator[str]:
    """The lines of a text, without line ends."""
    try:
        with open(path, "rb") as stream:
            start = stream.peek(8)
            for command, magic in COMPRESSED.items():
                if start.startswith(magic):
                    sys.exit(f"{path}: is compressed; unpack it first: {command} {path}")
            for number, line in enumerate(stream, start=1):
                try:
                    yield line.decode().rstrip("\r\n")
                except UnicodeDecodeError as error:
                    sys.exit(f"{path}, line {number}: is not UTF-8 ({error.reason})")
    except OSError as error:
        sys.exit(f"{path}: {error.strerror}")


def check_text(path: str) -> None:
    """Refuse a file that is compressed, not UTF-8, or empty."""
    if not sum(bool(line.strip()) for line in lines_of(path)):
        sys.exit(f"{path}: is empty")


def check_pair(source: str, target: str) -> None:
    """Refuse two texts that are not parallel."""
    counts = {}
    for path in (source, target):
        check_text(path)
        for number, line in enumerate(lines_of(path), start=1):
            if "\r" in line:  # the tools would read two lines
                sys.exit(f"{path}, line {number}: has a carriage return; remove it: tr '\\r' ' '")
            counts[path] = number
    if counts[source] != counts[target]:
        sys.exit(f"{source} has {counts[source]} lines, {target} has {counts[target]}")


def check_lengths(most: int, path: str) -> None:
    """Refuse a line that is longer than a sample, because fairseq would drop it."""
    for number, line in enumerate(lines_of(path), start=1):
        length = len(line.split())
        if length > most:
            sys.exit(f"{path}, line {number}: has {length} tokens; a sample has up to {most}")


def check_vocabulary(dictionary: str, path: str) -> None:
    """Refuse a dictionary that lacks many tokens of the text."""
    known = {line.split(" ")[0] for line in lines_of(dictionary)}
    total = unknown = 0
    for line in lines_of(path):
        tokens = line.split()
        total += len(tokens)
        unknown += sum(token not in known for token in tokens)
    print(f"{path}: {unknown} of {total} tokens are not in {dictionary}", file=sys.stderr)
    if unknown > MOST_UNKNOWN * total:
        sys.exit(f"{dictionary}: lacks {unknown / total:.0%} of tokens in {path}; wrong model?")


def main() -> None:
    """Run the command line."""
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    checks = parser.add_subparsers(dest="check", required=True)
    checks.add_parser("texts").add_argument("files", nargs="+", metavar="FILE")
    checks.add_parser("pairs").add_argument("files", nargs=2, metavar="FILE")
    lengths = checks.add_parser("lengths")
    lengths.add_argument("most", type=int)
    lengths.add_argument("files", nargs="+", metavar="FILE")
    vocabulary = checks.add_parser("vocabulary")
    vocabulary.add_argument("dictionary", metavar="DICT")
    vocabulary.add_argument("files", nargs="+", metavar="FILE")
    args = parser.parse_args()
    if args.check == "pairs":
        check_pair(*args.files)
        return
    for path in args.files:
        if args.check == "texts":
            check_text(path)
        elif args.check == "lengths":
            check_lengths(args.most, path)
        else:
            check_vocabulary(args.dictionary, path)


if __name__ == "__main__":
    main()
