"""Write made-up parallel text of any size, to measure the rate and the memory of the preparation.

    python made_up.py OUT --pairs 4500000

writes OUT/{train,valid,test}.{aa,bb}, the first compressed. Words are drawn as they are in real
text: their frequencies fall with their rank (Zipf's law with Mandelbrot's shift), and a longer text
has more different ones.
"""

import gzip
import string
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, Optional, Sequence

import numpy

from fairseq_posenc.flags.usage import documented_parser

LANGUAGES = ("aa", "bb")
HELD_OUT = 1000  # pairs in valid, and in test
BLOCK = 10000  # lines drawn at once


def spellings(draw: numpy.random.Generator, count: int) -> numpy.ndarray:
    """Different words of 1 to 14 letters, the frequent ones shorter."""
    letters = numpy.array(list(string.ascii_lowercase))
    weights = 1 / numpy.arange(2, len(letters) + 2)
    found: Dict[str, None] = {}
    while len(found) < count:
        ranks = len(found) + numpy.arange(max(1, len(found)))
        lengths = 1 + numpy.minimum(13, draw.poisson(1.5 + 0.75 * numpy.log10(ranks + 1)))
        text = "".join(draw.choice(letters, lengths.sum(), p=weights / weights.sum()))
        ends = numpy.cumsum(lengths)
        found.update((text[end - length : end], None) for end, length in zip(ends, lengths))
    return numpy.array(list(found)[:count])


def write(path: Path, lines: Iterable[str]) -> None:
    """Write a text, compressed if its name says so."""
    packed = path.suffix == ".gz"
    with gzip.open(path, "wb", 3) if packed else open(path, "wb") as stream:
        for line in lines:
            stream.write(line.encode() + b"\n")


def sentences(words: numpy.ndarray, count: int, lengths: Any, draw: Any) -> Iterator[str]:
    """Draw sentences, of about 25 words."""
    weights = 1 / (numpy.arange(len(words)) + 2.7) ** 1.05
    bounds = numpy.cumsum(weights / weights.sum())
    for start in range(0, count, BLOCK):
        sizes = 1 + lengths.gamma(4, 6, min(BLOCK, count - start)).astype(int)
        chosen = words[numpy.searchsorted(bounds[:-1], draw.random(sizes.sum()))]
        for line in numpy.split(chosen, numpy.cumsum(sizes)[:-1]):
            yield " ".join(line).capitalize() + "."


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Run the command line."""
    parser = documented_parser(__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--pairs", type=int, default=200000, help="in train (200000)")
    parser.add_argument("--words", type=int, default=300000, help="different words (300000)")
    args = parser.parse_args(argv)
    args.out.mkdir(parents=True, exist_ok=True)
    for seed, lang in enumerate(LANGUAGES):
        words = spellings(numpy.random.default_rng(seed), args.words)
        lengths = numpy.random.default_rng(9)  # the same for both languages
        draw = numpy.random.default_rng(100 + seed)
        for split in ("valid", "test", "train"):
            count = args.pairs if split == "train" else HELD_OUT
            name = f"{split}.{lang}{'.gz' if split == 'train' else ''}"
            write(args.out / name, sentences(words, count, lengths, draw))


if __name__ == "__main__":
    main()
