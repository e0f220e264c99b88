"""Write the sentences of parallel documents, each with earlier sentences as context.

    python context.py --context 0,3 train.en train.de context.en context.de

The texts have one sentence per line, split into the model's tokens, and blank lines between
documents. Sentences are joined by <brk> (Tiedemann and Scherrer 2017, arXiv 1708.05943).
If context does not fit, its first sentences are left out on both sides, and counted.
"""

import os
import sys
from argparse import ArgumentParser, ArgumentTypeError, RawDescriptionHelpFormatter
from collections import Counter
from itertools import zip_longest
from typing import Iterable, Iterator, List, Optional, Sequence, Tuple

Tokens = List[str]
Pair = Tuple[Tokens, Tokens]  # a sentence and its translation
Sample = Tuple[Tokens, Tokens, int]  # source, target, and how many context sentences did not fit
SEPARATOR = "<brk>"
SIDES = {"both": (True, True), "source": (True, False), "target": (False, True)}


def contexts(value: str) -> List[Optional[int]]:
    """The numbers of sentences in a list such as ``0,3,whole``; None stands for ``whole``."""
    names = value.split(",")
    if not all(name == "whole" or name.isdecimal() for name in names):
        raise ArgumentTypeError(f"{value}: expected numbers of sentences or whole, such as 0,3")
    return [None if name == "whole" else int(name) for name in names]


def joined(sentences: Iterable[Tokens]) -> Tokens:
    """Join sentences by the separator: ``a b <brk> c``."""
    return [token for sentence in sentences for token in (SEPARATOR, *sentence)][1:]


def documents(source: str, target: str) -> Iterator[List[Pair]]:
    """The documents of two parallel texts."""
    found: List[Pair] = []
    with open(source, encoding="utf-8") as left, open(target, encoding="utf-8") as right:
        for number, lines in enumerate(zip_longest(left, right), 1):
            if None in lines:
                sys.exit(f"{source} and {target} have different numbers of lines")
            one, two = (line.split() for line in lines)
            if bool(one) != bool(two):
                sys.exit(f"{source} and {target}: line {number} is blank in only one of them")
            if SEPARATOR in one + two:
                sys.exit(f"{source} and {target}: line {number} has {SEPARATOR}; replace it")
            if one:
                found.append((one, two))
            elif found:
                yield found
                found = []
    if found:
        yield found


def with_context(
    before: Sequence[Pair], pair: Pair, count: Optional[int], sides: str, room: Sequence[int]
) -> Sample:
    """A sentence after its last *count* predecessors (None: all), or as many as fit in *room*."""
    wanted = before if count is None else before[max(len(before) - count, 0) :]
    for first in range(len(wanted) + 1):
        source, target = (
            joined(one[side] for one in (*(wanted[first:] if has else ()), pair))
            for side, has in enumerate(SIDES[sides])
        )
        if len(source) <= room[0] and len(target) <= room[1]:
            break
    return source, target, first


def in_pieces(document: Sequence[Pair], longest: int) -> Iterator[List[Pair]]:
    """Split a document into the longest pieces that have up to *longest* tokens per side."""
    piece: List[Pair] = []
    for pair in document:
        if piece and any(len(joined(side)) > longest for side in zip(*piece, pair)):
            yield piece
            piece = []
        piece.append(pair)
    if piece:
        yield piece


def main() -> None:
    """Run the command line."""
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--context", type=contexts, required=True, metavar="N,...")
    parser.add_argument("--sides", choices=SIDES, default="both")
    parser.add_argument("--longest", type=int, default=1022, help="maximum tokens per side")
    parser.add_argument("--last", action="store_true", help="only each document's last sentence")
    parser.add_argument("texts", nargs=4, metavar="FILE")
    args = parser.parse_args()
    if None in args.context and args.sides != "both":
        sys.exit(f"--context whole: needs both sides; drop --sides {args.sides}")
    outputs = args.texts[2:]
    counts: Counter[str] = Counter()

    def samples(document: List[Pair], count: Optional[int]) -> Iterator[Sample]:
        if count is None and not args.last:
            for piece in in_pieces(document, args.longest):
                yield joined(one for one, _ in piece), joined(two for _, two in piece), 0
            return
        for n in range(len(document) - 1 if args.last else 0, len(document)):
            yield with_context(document[:n], document[n], count, args.sides, [args.longest] * 2)

    streams = [open(f"{path}.part", "w", encoding="utf-8") for path in outputs]
    for document in documents(*args.texts[:2]):
        fitting = [pair for pair in document if max(map(len, pair)) <= args.longest]
        counts.update(documents=1, sentences=len(document), long=len(document) - len(fitting))
        for sample in (made for count in args.context for made in samples(fitting, count)):
            for stream, side in zip(streams, sample[:2]):
                stream.write(" ".join(side) + "\n")
            counts.update(samples=1, dropped=sample[2])
    if not counts["samples"]:
        sys.exit(f"{args.texts[0]}: has no sentence of at most {args.longest} tokens")
    if counts["documents"] == 1 < counts["sentences"] and not args.last:
        sys.exit(f"{args.texts[0]}: has no blank line; put one after each document")
    for stream, path in zip(streams, outputs):
        stream.close()
        os.replace(stream.name, path)
    said = "{documents:,} documents, {sentences:,} sentences, {samples:,} samples; {dropped:,} "
    said += "sentences of context did not fit; left out {long:,} overlong sentences"
    print(f"{args.texts[0]}: {said.format_map(counts)}", file=sys.stderr)


if __name__ == "__main__":
    main()
