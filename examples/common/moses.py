"""Moses punctuation normalisation and tokenisation of a text, or detokenisation.

    python moses.py tokenize --lang de [--dash-splits] [--lower-case] INPUT OUTPUT [...]
    python moses.py detokenize --lang de INPUT OUTPUT [...]

Before tokenisation, control, format and private-use characters become spaces, and runs of white
space a single space, so every line stays one line.
"""

import argparse
import unicodedata
from typing import Callable, Dict, Optional, Sequence

from parallel import add_texts, add_workers_flag, map_texts
from text import fail

try:
    from sacremoses import MosesDetokenizer, MosesPunctNormalizer, MosesTokenizer
except ImportError:
    fail("sacremoses is not installed; run: pip install sacremoses")


class _Printable(Dict[int, str]):
    """Translation table that turns characters of Unicode's C categories into spaces."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        self[code] = " " if unicodedata.category(character)[0] == "C" else character
        return self[code]


def tokenizer(lang: str, dash_splits: bool, lower_case: bool = False) -> Callable[[str], str]:
    """Return a function that normalises and tokenises a line.

    Args:
        lang: two-letter language code.
        dash_splits: split hyphenated words as ``rich @-@ text`` (Moses' ``-a``).
        lower_case: lower-case the line first.
    """
    printable = _Printable()
    normalizer = MosesPunctNormalizer(lang=lang)
    moses = MosesTokenizer(lang=lang)

    def tokenize(line: str) -> str:
        line = line.lower() if lower_case else line
        line = " ".join(line.translate(printable).split())
        line = normalizer.normalize(line)
        line = moses.tokenize(line, aggressive_dash_splits=dash_splits, return_str=True)
        return " ".join(line.split())

    return tokenize


def detokenizer(lang: str) -> Callable[[str], str]:
    """Return a function that detokenises a line."""
    moses = MosesDetokenizer(lang=lang)
    return lambda line: moses.detokenize(line.split())


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("action", choices=["tokenize", "detokenize"])
    parser.add_argument("--lang", required=True, help="two-letter language code")
    parser.add_argument(
        "--dash-splits", action="store_true", help="split hyphenated words: rich @-@ text"
    )
    parser.add_argument("--lower-case", action="store_true", help="lower-case the text first")
    add_workers_flag(parser)
    add_texts(parser)
    args = parser.parse_args(argv)
    if args.action == "tokenize":
        map_texts(tokenizer, (args.lang, args.dash_splits, args.lower_case), args)
    else:
        map_texts(detokenizer, (args.lang,), args)


if __name__ == "__main__":
    main()
