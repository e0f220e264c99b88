"""Break lines that are longer than a sample: python fold.py MOST [START] < SYMBOLS > SYMBOLS

A piece has at most MOST symbols. It ends after the last sentence that fits, else after the last
word, else within a word. START is the prefix of symbols that begin a word. Without START, symbols
that do not end a word end in @@, and symbols that do not begin a word begin with ##.
"""

import sys
from typing import Iterator, List

ENDS = frozenset(".!?。！？")
CLOSING = frozenset(["&quot;", "&apos;", "'", '"', "”", "’", ")", "&#93;", "»"])


def ends_sentence(symbols: List[str], count: int) -> bool:
    """True if a sentence ends after the first *count* symbols."""
    if symbols[count] in CLOSING:
        return False
    while count > 1 and symbols[count - 1] in CLOSING:
        count -= 1
    return symbols[count - 1] in ENDS


def inside_word(symbols: List[str], count: int, start: str) -> bool:
    """True if the first *count* symbols end within a word."""
    if start:
        return not symbols[count].startswith(start)
    return symbols[count - 1].endswith("@@") or symbols[count].startswith("##")


def fold(symbols: List[str], most: int, start: str = "") -> Iterator[List[str]]:
    """Yield the pieces of a line, of at most *most* symbols each."""
    bare = [symbol.replace(start, "") for symbol in symbols] if start else symbols
    while len(symbols) > most:
        cuts = range(most, 0, -1)
        sentences = (cut for cut in cuts if ends_sentence(bare, cut))
        words = (cut for cut in cuts if not inside_word(symbols, cut, start))
        cut = next(sentences, None) or next(words, most)
        yield symbols[:cut]
        symbols, bare = symbols[cut:], bare[cut:]
    yield symbols


if __name__ == "__main__":
    if not 2 <= len(sys.argv) <= 3:
        sys.exit(__doc__)
    for line in sys.stdin.buffer:
        for piece in fold(line.decode().split(), int(sys.argv[1]), *sys.argv[2:]):
            sys.stdout.buffer.write(" ".join(piece).encode() + b"\n")
