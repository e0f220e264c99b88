"""A vocabulary of words for Chinese, with characters for the words that are not in it.

    python words.py learn [--size 50000] [--level word] VOCABULARY INPUT [INPUT ...]
    python words.py apply VOCABULARY INPUT OUTPUT [INPUT OUTPUT ...]

INPUT is text with spaces between words, as `clue_pretraining/pieces.py segment` writes it. `learn`
keeps as many symbols as --size says: the characters that make up 99.99 % of the text, and the most
frequent words. With --level character, there are no words of more than one character.

`apply` keeps the words of the vocabulary, and writes any other as its characters, all but the first
with the mark `##`: so words can be put together again, whatever the vocabulary has.
"""

import argparse
import itertools
from collections import Counter
from typing import Callable, Iterable, List, Optional, Sequence, Set

from parallel import learn_or_apply, map_texts
from text import Progress, atomic_writer, fail, read_lines

MARK = "##"  # as in clue_pretraining, whose --bpe marked_pieces finds the beginnings of words
RESERVED = {"<s>", "<pad>", "</s>", "<unk>", "<mask>"}


def in_characters(word: str) -> List[str]:
    """The characters of a word, all but the first with the mark."""
    return [word[0], *(MARK + character for character in word[1:])]


def can_be_symbol(word: str) -> bool:
    """True if a word can be told from characters and from fairseq's own symbols."""
    return len(word) > 1 and not word.startswith(MARK) and word not in RESERVED


def splitter(vocabulary: Set[str]) -> Callable[[str], str]:
    """Return a function that turns a line of words into symbols."""

    def split(line: str) -> str:
        return " ".join(
            symbol
            for word in line.split()
            for symbol in ([word] if word in vocabulary else in_characters(word))
        )

    return split


def joined(line: str) -> str:
    """The words of a line of symbols."""
    return line.replace(" " + MARK, "")


def most_frequent(counts: "Counter[str]") -> List[str]:
    """Symbols by falling frequency, those of the same frequency in order of their characters."""
    return sorted(counts, key=lambda symbol: (-counts[symbol], symbol))


def choose(counts: "Counter[str]", size: int, level: str, coverage: float) -> List[str]:
    """The words of more than one character that a vocabulary has.

    Args:
        counts: how often each word occurs.
        size: number of symbols, characters included.
        level: word or character; the latter has no words.
        coverage: share of the text that the characters are to make up.
    """
    if level == "character":
        return []
    characters: Counter[str] = Counter()
    for word, count in counts.items():
        for symbol in in_characters(word):
            characters[symbol] += count
    needed = coverage * sum(characters.values())
    sums = itertools.accumulate(characters[symbol] for symbol in most_frequent(characters))
    kept = 1 + sum(1 for total in sums if total < needed)
    if kept >= size:
        fail(f"--size {size}: the text has {kept} frequent characters, with and without mark")
    words: Counter[str] = Counter({w: n for w, n in counts.items() if can_be_symbol(w)})
    return most_frequent(words)[: size - kept]


def count_words(paths: Iterable[str]) -> "Counter[str]":
    """Count the words of several texts."""
    counts: Counter[str] = Counter()
    for path in paths:
        progress, number = Progress(path), 0
        for number, line in enumerate(read_lines(path, progress), 1):
            counts.update(line.split())
            progress.at(number)
        progress.end(number)
    return counts


def segmenter(path: str) -> Callable[[str], str]:
    """Return a function that turns a line of words into symbols of the vocabulary in a file."""
    vocabulary: Set[str] = set()
    for number, word in enumerate(read_lines(path), 1):
        if not can_be_symbol(word) or len(word.split()) != 1:
            fail(f"{path}, line {number}: {word!r} is no word; give the file that `learn` wrote")
        vocabulary.add(word)
    return splitter(vocabulary)


def learn(args: argparse.Namespace) -> None:
    """Write a vocabulary; ``args`` is what the command line says."""
    counts = count_words(args.inputs)
    if not counts:
        fail("{}: no words to learn from".format(" ".join(args.inputs)))
    with atomic_writer(args.vocabulary) as stream:
        for word in choose(counts, args.size, args.level, args.character_coverage):
            stream.write(word + "\n")


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Run the command line."""
    parser, learning = learn_or_apply(__doc__, "vocabulary", "symbols")
    add = learning.add_argument
    add("--size", type=int, default=50000, metavar="N", help="number of symbols (50000)")
    add("--level", choices=("word", "character"), default="word", help="(word)")
    add(
        "--character-coverage",
        type=float,
        default=0.9999,
        metavar="X",
        help="part of the text whose characters have symbols (0.9999)",
    )
    args = parser.parse_args(argv)
    if args.action == "apply":
        map_texts(segmenter, (args.vocabulary,), args)
        return
    if args.size < 1:
        fail(f"--size {args.size}: expected 1 or more")
    if not 0.9 <= args.character_coverage <= 1:
        fail(f"--character-coverage {args.character_coverage}: expected 0.9 to 1")
    learn(args)


if __name__ == "__main__":
    main()
