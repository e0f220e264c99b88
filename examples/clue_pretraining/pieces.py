"""Convert Chinese text to symbols: characters and word pieces, with word boundaries marked.

    python pieces.py documents [--blank-lines] INPUT OUTPUT
    python pieces.py segment [--segmented] [--keep-case] INPUT OUTPUT
    python pieces.py latin INPUT OUTPUT
    python pieces.py split CODES INPUT OUTPUT

`documents` writes one document per line. `segment` separates words by spaces and lower-cases them.
`latin` extracts the parts of words on which BPE is learned: letters and digits other than Chinese
characters. `split` turns each Chinese character and each sign into a symbol, and the rest into word
pieces. Every symbol except the first of a word begins with `##`.
"""

import argparse
import re
import sys
from typing import Callable, Iterator, List, Optional, Sequence

from documents import by_blank_lines
from parallel import add_workers_flag, map_lines
from segmenter import jieba_words, spaces
from text import atomic_writer, fail, read_lines

MARK = "##"  # prefix of symbols that continue a word, as in WordPiece
HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
# a Chinese character; letters and digits of other scripts together; any other sign
PARTS = re.compile(f"[{HAN}]|[^\\W_{HAN}]+|\\S")


def documents(path: str, blank_lines: bool) -> Iterator[str]:
    """Yield the documents of a text, each as one line.

    Args:
        path: the text.
        blank_lines: blank lines separate documents; otherwise each line is a document.
    """
    lines = read_lines(path)
    if blank_lines:
        return (" ".join(document) for document in by_blank_lines(lines))
    return (line.strip() for line in lines if line.strip())


def word_writer(segmented: bool, keep_case: bool) -> Callable[[str], str]:
    """Return a function that separates the words of a line by spaces.

    Lower-casing follows segmentation, whose dictionary has words such as `T恤`.
    """
    cut = spaces() if segmented else jieba_words()

    def words(line: str) -> str:
        text = " ".join(" ".join(cut(line)).split())
        return text if keep_case else text.lower()

    return words


def latin_writer() -> Callable[[str], str]:
    """Return a function that extracts the parts of a line's words to be split by BPE."""
    return lambda line: " ".join(part for part in PARTS.findall(line) if len(part) > 1)


def symbol_writer(codes: str) -> Callable[[str], str]:
    """Return a function that turns a line of words into symbols, separated by spaces."""
    from bpe import segmenter  # needs subword-nmt, which the other actions do not

    split = segmenter(codes)

    def symbols(line: str) -> str:
        return " ".join(symbol for word in line.split() for symbol in marked(word, split))

    return symbols


def marked(word: str, split: Callable[[str], str]) -> List[str]:
    """The symbols of a word, all but the first with the mark as prefix.

    Args:
        word: a word, possibly of several scripts.
        split: splits a Latin word into BPE pieces, joined by ``@@ ``.
    """
    found: List[str] = []
    for part in PARTS.findall(word):
        found += [part] if len(part) == 1 else split(part).replace("@@ ", " ").split()
    return found[:1] + [MARK + symbol for symbol in found[1:]]


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    actions = parser.add_subparsers(dest="action", metavar="{documents,segment,latin,split}")
    actions.required = True
    lines = actions.add_parser("documents", help="write one document per line")
    lines.add_argument("--blank-lines", action="store_true", help="blank lines separate documents")
    segment = actions.add_parser("segment", help="separate words by spaces")
    segment.add_argument("--segmented", action="store_true", help="words are separated already")
    segment.add_argument("--keep-case", action="store_true", help="do not lower-case the text")
    latin = actions.add_parser("latin", help="extract the text on which BPE is learned")
    split = actions.add_parser("split", help="split words into symbols")
    split.add_argument("codes", help="merges learned by common/bpe.py")
    for action in (lines, segment, latin, split):
        add_workers_flag(action)
        action.add_argument("input")
        action.add_argument("output")
    args = parser.parse_args(argv)
    files = (args.input, args.output, args.workers)
    if args.action == "documents":
        count = 0
        with atomic_writer(args.output) as stream:
            for document in documents(args.input, args.blank_lines):
                stream.write(document + "\n")
                count += 1
            if not count:
                fail(f"{args.input}: contains no text")
        print(f"{args.input}: {count} documents", file=sys.stderr)
    elif args.action == "segment":
        map_lines(word_writer, (args.segmented, args.keep_case), *files)
    elif args.action == "latin":
        map_lines(latin_writer, (), *files)
    else:
        map_lines(symbol_writer, (args.codes,), *files)


if __name__ == "__main__":
    main()
