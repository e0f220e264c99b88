"""Break lines of more than N tokens, at the end of a sentence where possible.

    python fold.py --max-tokens 510 INPUT OUTPUT

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


def _inside_word(tokens: Sequence[str], count: int) -> bool:
    """True if the first *count* tokens end within a word."""
    return tokens[count - 1].endswith("@@") or tokens[count].startswith("##")


def pieces(tokens: List[str], limit: int) -> List[List[str]]:
    """Cut a line into pieces of at most *limit* tokens.

    A piece ends after the last sentence that fits, otherwise after the last word that fits,
    otherwise within a word.

    Args:
        tokens: subwords; ``@@`` marks those that do not end a word, ``##`` those that do not
            begin one.
        limit: maximum number of tokens per piece.
    """
    found = []
    while len(tokens) > limit:
        cuts = range(limit, 0, -1)
        sentences = (cut for cut in cuts if _ends_sentence(tokens, cut))
        words = (cut for cut in cuts if not _inside_word(tokens, cut))
        cut = next(sentences, None) or next(words, limit)
        found.append(tokens[:cut])
        tokens = tokens[cut:]
    return [*found, tokens]


def folder(limit: int) -> Callable[[str], str]:
    """Return a function that breaks a line into pieces, joined by line feeds."""
    return lambda line: "\n".join(" ".join(piece) for piece in pieces(line.split(), limit))


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--max-tokens", type=int, default=510, help="maximum tokens per line")
    add_workers_flag(parser)
    parser.add_argument("input")
    parser.add_argument("output")
    args = parser.parse_args(argv)
    if args.max_tokens < 1:
        fail(f"--max-tokens {args.max_tokens}: expected 1 or more")
    map_lines(folder, (args.max_tokens,), args.input, args.output, args.workers)


if __name__ == "__main__":
    main()
