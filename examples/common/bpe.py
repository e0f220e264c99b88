"""Joint byte-pair encoding with subword-nmt: learned from several texts, applied to one.

    python bpe.py learn --operations 32000 CODES INPUT [INPUT ...]
    python bpe.py apply CODES INPUT OUTPUT

Words are counted first, so memory grows with the vocabulary rather than the text, and the codes
depend neither on the order of the sentences nor on the number of processes.
"""

import argparse
import io
import os
from collections import Counter
from typing import Callable, List, Optional, Sequence

from text import (
    add_workers_flag,
    atomic_writer,
    fail,
    map_lines,
    parallel_map,
)

# subword-nmt prints its progress ten times a second, which would fill log files.
os.environ.setdefault("TQDM_MININTERVAL", "10")
try:
    from subword_nmt.apply_bpe import BPE
    from subword_nmt.learn_bpe import learn_bpe
except ImportError:
    fail("subword-nmt is not installed; run: pip install subword-nmt")


def _splitter() -> Callable[[str], List[str]]:
    return str.split


def learn(paths: Sequence[str], codes: str, operations: int, workers: int) -> None:
    """Learn one set of merges jointly from all texts and write it to ``codes``."""
    words: Counter = Counter()
    for path in paths:
        for line in parallel_map(_splitter, (), path, workers):
            words.update(line)
    if not words:
        fail("{}: no words to learn from".format(" ".join(paths)))
    dictionary = io.StringIO("".join(f"{word} {count}\n" for word, count in words.items()))
    with atomic_writer(codes) as stream:
        learn_bpe(dictionary, stream, operations, is_dict=True)


def segmenter(codes: str) -> Callable[[str], str]:
    """Return a function that splits a tokenised line into subwords (joined by ``@@ ``)."""
    try:
        stream = open(codes, encoding="utf-8")
    except OSError as error:
        fail(f"{codes}: {error.strerror}")
    with stream:
        return BPE(stream).process_line


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    actions = parser.add_subparsers(dest="action", metavar="{learn,apply}")
    actions.required = True
    learning = actions.add_parser("learn", help="learn merges")
    learning.add_argument("--operations", type=int, default=32000, help="number of merges")
    learning.add_argument("codes")
    learning.add_argument("inputs", nargs="+")
    applying = actions.add_parser("apply", help="apply merges")
    applying.add_argument("codes")
    applying.add_argument("input")
    applying.add_argument("output")
    for action in (learning, applying):
        add_workers_flag(action)
    args = parser.parse_args(argv)
    if args.action == "learn":
        if args.operations < 1:
            fail(f"--operations {args.operations}: expected 1 or more")
        learn(args.inputs, args.codes, args.operations, args.workers)
    else:
        map_lines(segmenter, (args.codes,), args.input, args.output, args.workers)


if __name__ == "__main__":
    main()
