"""Joint byte-pair encoding with subword-nmt: learned from several texts, applied to others.

    python bpe.py learn --vocabulary-size 32000 CODES INPUT [INPUT ...]
    python bpe.py learn --operations 32000 CODES INPUT [INPUT ...]
    python bpe.py apply CODES INPUT OUTPUT [INPUT OUTPUT ...]

The text is read as a stream and its words are counted first, so memory grows with the number of
different words rather than the text, and the codes do not depend on the order of the sentences.
With --words, merges are learned from the most frequent words only, in bounded memory.

A vocabulary of N symbols is N less the characters of the text, counted once within words and once
at their ends, as merges; so it is an upper bound of what fairseq-preprocess counts in the text,
without its four special symbols.
"""

import heapq
import io
import os
import sys
from collections import Counter
from typing import Callable, Optional, Sequence

from parallel import learn_or_apply, map_texts
from text import Progress, atomic_writer, fail, read_lines

# subword-nmt prints its progress ten times a second, which would fill log files.
os.environ.setdefault("TQDM_MININTERVAL", "10")
try:
    from subword_nmt.apply_bpe import BPE
    from subword_nmt.learn_bpe import learn_bpe
except ImportError:
    fail("subword-nmt is not installed; run: pip install subword-nmt")


def count_words(paths: Sequence[str]) -> Counter:
    """Count the words of several texts."""
    words: Counter = Counter()
    for path in paths:
        progress, number = Progress(path), 0
        for number, line in enumerate(read_lines(path, progress), 1):
            words.update(line.split())
            progress.at(number)
        progress.end(number)
    if not words:
        fail("{}: no words to learn from".format(" ".join(paths)))
    return words


def count_characters(words: Counter) -> int:
    """The number of symbols before any merge: characters within words, and at their ends."""
    within = set().union(*(set(word[:-1]) for word in words))
    return len(within) + len({word[-1] for word in words})


def learn(
    paths: Sequence[str],
    codes: str,
    operations: Optional[int] = None,
    vocabulary_size: Optional[int] = None,
    most_frequent: Optional[int] = None,
) -> None:
    """Learn one set of merges jointly from all texts.

    Args:
        paths: the texts, in words.
        codes: the file to write.
        operations: number of merges; fewer are learned where the text has no more.
        vocabulary_size: number of characters and merges together, instead.
        most_frequent: number of words to learn from; words as frequent as the last of them are
            taken in alphabetical order.
    """
    words = count_words(paths)
    if most_frequent is not None and most_frequent < len(words):
        print(f"learning from {most_frequent} of {len(words)} words", file=sys.stderr)
        ranked = heapq.nsmallest(most_frequent, words.items(), key=lambda item: (-item[1], item[0]))
        words = Counter(dict(ranked))
    if vocabulary_size is not None:
        characters = count_characters(words)
        operations = vocabulary_size - characters
        if operations < 1:
            fail(
                f"--vocabulary-size {vocabulary_size}: the text has {characters} characters, "
                "within words and at their ends; give more"
            )
    assert operations is not None
    merges = io.StringIO()
    if any(len(word) > 1 for word in words):
        dictionary = io.StringIO("".join(f"{word} {count}\n" for word, count in words.items()))
        learn_bpe(dictionary, merges, operations, is_dict=True)
    found = max(merges.getvalue().count("\n") - 1, 0)
    if vocabulary_size is not None and found < operations:
        most = vocabulary_size - operations + found
        fail(f"--vocabulary-size {vocabulary_size}: the text gives no more than {most}")
    if not found:  # subword-nmt does not read codes without merges
        fail(
            "{}: no two characters stand together twice in a word, so there is nothing to merge; "
            "give more text, or other subwords".format(" ".join(paths))
        )
    with atomic_writer(codes) as stream:
        stream.write(merges.getvalue())


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
    parser, learning = learn_or_apply(__doc__, "codes", "subwords")
    size = learning.add_mutually_exclusive_group()
    size.add_argument("--operations", type=int, help="number of merges (32000)")
    size.add_argument(
        "--vocabulary-size", type=int, metavar="N", help="number of symbols, merges and characters"
    )
    learning.add_argument(
        "--words", type=int, metavar="N", help="learn from the N most frequent words (all)"
    )
    args = parser.parse_args(argv)
    if args.action == "learn":
        for flag in ("operations", "words"):
            number = getattr(args, flag)
            if number is not None and number < 1:
                fail(f"--{flag} {number}: expected 1 or more")
        if args.operations is None and args.vocabulary_size is None:
            args.operations = 32000
        learn(args.inputs, args.codes, args.operations, args.vocabulary_size, args.words)
    else:
        map_texts(segmenter, (args.codes,), args)


if __name__ == "__main__":
    main()
