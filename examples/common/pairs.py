"""Check that two texts are parallel before hours of work on them; copy them on request.

    python pairs.py [--longest 1022] SOURCE TARGET [NEW_SOURCE NEW_TARGET]

Both must be UTF-8 and have the same number of lines, at least one. The copies are plain text, even
of compressed files.
"""

import argparse
import contextlib
from typing import Optional, Sequence

from text import atomic_writer, fail, read_pairs


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--longest", type=int, metavar="N", help="refuse lines of more tokens, separated by spaces"
    )
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("copies", nargs="*", metavar="NEW_SOURCE NEW_TARGET")
    args = parser.parse_args(argv)
    if len(args.copies) not in (0, 2):
        fail("give two copies or none; see --help")
    paths, number = (args.source, args.target), 0
    with contextlib.ExitStack() as stack:
        copies = [stack.enter_context(atomic_writer(path)) for path in args.copies]
        for number, pair in enumerate(read_pairs(*paths), 1):
            for copy, line in zip(copies, pair):
                copy.write(line + "\n")
            if args.longest is None:
                continue
            for path, line in zip(paths, pair):
                length = len(line.split())
                if length > args.longest:
                    fail(f"{path}, line {number}: {length} tokens, more than {args.longest}")
        if not number:
            fail(f"{args.source} and {args.target}: are empty")


if __name__ == "__main__":
    main()
