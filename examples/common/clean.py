"""Drop sentence pairs that are empty, too long, or too unequal in length.

    python clean.py --max-length 250 --ratio 1.5 SOURCE TARGET NEW_SOURCE NEW_TARGET

Lengths count space-separated tokens, so run this on the text that the model reads (after BPE).
"""

import argparse
import sys
from collections import Counter
from typing import Optional, Sequence

from text import atomic_writer, fail, read_pairs


def verdict(source: str, target: str, min_length: int, max_length: int, ratio: float) -> str:
    """Return why a pair is dropped, ``short``, ``long`` or ``ratio``, or ``kept``.

    Args:
        source: tokens separated by spaces.
        target: the same for the other side.
        min_length: minimum tokens per side.
        max_length: maximum tokens per side.
        ratio: maximum ratio of the longer to the shorter side.
    """
    one, two = len(source.split()), len(target.split())
    if min(one, two) < min_length:
        return "short"
    if max(one, two) > max_length:
        return "long"
    if max(one, two) > ratio * min(one, two):
        return "ratio"
    return "kept"


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--min-length", type=int, default=1)
    parser.add_argument("--max-length", type=int, default=250)
    parser.add_argument("--ratio", type=float, default=1.5)
    for name in ("source", "target", "new_source", "new_target"):
        parser.add_argument(name)
    args = parser.parse_args(argv)
    if args.min_length < 1:
        fail(f"--min-length {args.min_length}: expected 1 or more")
    if args.max_length < args.min_length:
        fail(f"--max-length {args.max_length}: below --min-length")
    if not args.ratio >= 1:
        fail(f"--ratio {args.ratio}: expected 1 or more")
    counts: Counter = Counter()
    with atomic_writer(args.new_source) as left, atomic_writer(args.new_target) as right:
        for source, target in read_pairs(args.source, args.target):
            reason = verdict(source, target, args.min_length, args.max_length, args.ratio)
            counts[reason] += 1
            if reason == "kept":
                left.write(source + "\n")
                right.write(target + "\n")
        if not counts["kept"]:
            fail(f"{args.source}: none of {sum(counts.values())} pairs is left")
    print(
        f"kept {counts['kept']} of {sum(counts.values())} pairs; dropped {counts['short']} short, "
        f"{counts['long']} long, {counts['ratio']} by ratio",
        file=sys.stderr,
    )


if __name__ == "__main__":
    main()
