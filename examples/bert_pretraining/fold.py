"""Break lines of more than N tokens, at the end of a sentence where possible.

    python fold.py --max-tokens 510 [--word-start MARK] INPUT OUTPUT

`--sample-break-mode complete` packs whole lines into a sample and drops lines longer than a sample.
Run this on the text that the model reads (after BPE). Blank lines are kept.
"""

import argparse
from typing import Callable, List, Optional, Sequence

from parallel import add_workers_flag, map_lines
from text import fail

ENDS = frozenset(".!?。！？")
CLOSING = frozenset(["&quot;", "&apos;", "'", '"', "”", "’", ")", "&#93;", "»"])


def _ends_sentence(tokens: Sequence[str], count: int) -> bool:
    """True if a sentence ends after the first *count* tokens."""
    if tokens[count] in CLOSING:
        return False
    while count > 1 and tokens[count - 1] in CLOSING:
        count -= 1
    return tokens[count - 1] in ENDS


def _inside_word(tokens: Sequence[str], count: int, word_start: str) -> bool:
    """True if the first *count* tokens end within a word."""
    if word_start:
        return not tokens[count].startswith(word_start)
    return tokens[count - 1].endswith("@@") or tokens[count].startswith("##")


def pieces(tokens: List[str], limit: int, word_start: str = "") -> List[List[str]]:
    """Cut a line into pieces of at most *limit* tokens.

    A piece ends after the last sentence that fits, otherwise after the last word that fits,
    otherwise within a word.

    Args:
        tokens: subwords; ``@@`` marks those that do not end a word, ``##`` those that do not
            begin one.
        limit: maximum number of tokens per piece.
        word_start: what tokens that begin a word begin with, instead of these marks.
    """
    found = []
    bare = [token.replace(word_start, "") for token in tokens] if word_start else tokens
    while len(tokens) > limit:
        cuts = range(limit, 0, -1)
        sentences = (cut for cut in cuts if _ends_sentence(bare, cut))
        words = (cut for cut in cuts if not _inside_word(tokens, cut, word_start))
        cut = next(sentences, None) or next(words, limit)
        found.append(tokens[:cut])
        tokens, bare = tokens[cut:], bare[cut:]
    return [*found, tokens]


def folder(limit: int, word_start: str = "") -> Callable[[str], str]:
    """Return a function that breaks a line into pieces, joined by line feeds."""
    return lambda line: "\n".join(map(" ".join, pieces(line.split(), limit, word_start)))


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--max-tokens", type=int, default=510, help="maximum tokens per line")
    parser.add_argument(
        "--word-start",
        default="",
        metavar="MARK",
        help="how tokens that begin a word begin (others are marked, by @@ or ##)",
    )
    add_workers_flag(parser)
    parser.add_argument("input")
    parser.add_argument("output")
    args = parser.parse_args(argv)
    if args.max_tokens < 1:
        fail(f"--max-tokens {args.max_tokens}: expected 1 or more")
    map_lines(folder, (args.max_tokens, args.word_start), args.input, args.output, args.workers)


if __name__ == "__main__":
    main()
