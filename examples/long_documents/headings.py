"""Make a classification task on long documents: do these headings belong to this article?

    fairseq-posenc script headings.py WIKITEXT OUT [--words 4096] [--seed 1]

WIKITEXT has train.txt and valid.txt of WikiText. An article gives two examples: its text without
headings, at most --words words of it, with the headings of the sections that begin in them, and
with those of another article. OUT gets train.tsv and valid.tsv for examples/glue/prepare.sh.
"""

import random
import re
from pathlib import Path
from typing import Iterable, Iterator, List, NamedTuple, Optional, Sequence

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.lines import read_lines, write_text
from fairseq_posenc.flags.usage import documented_parser

TITLE = re.compile(r"= (?!=)(.*[^=\s]) =")
HEADING = re.compile(r"(?:= )+(.*?)(?: =)+")
LEAST_HEADINGS = 2


class Article(NamedTuple):
    """An article: the headings of its sections, and its text without them."""

    headings: str
    body: str


def _clean(line: str) -> str:
    line = HEADING.sub(r"\1", line) if HEADING.fullmatch(line) else line
    return re.sub(r" @([-,.])@ ", r"\1", line).replace("<unk>", "unk")


def articles(lines: Iterable[str], words: int) -> Iterator[Article]:
    """Yield the articles of a text of WikiText that have at least two headings.

    Args:
        lines: the text.
        words: longest body; later sections are left out, and so are their headings.
    """
    headings: List[str] = []
    body: List[str] = []
    for line in [*map(str.strip, lines), "= End ="]:
        if TITLE.fullmatch(line):
            if len(headings) >= LEAST_HEADINGS:
                yield Article(" ; ".join(headings), " ".join(body[:words]))
            headings, body = [], []
        elif HEADING.fullmatch(line):
            if len(body) < words:
                headings.append(_clean(line))
        else:
            body += _clean(line).split()


def examples(found: Sequence[Article], seed: int) -> Iterator[str]:
    """Yield lines of TSV: every article with its own headings, and with those of another.

    Args:
        found: the articles.
        seed: the seed of the order, which decides whose headings are the wrong ones.
    """
    order = random.Random(seed).sample(list(found), len(found))
    for number, article in enumerate(order):
        others = [*order[number + 1 :], *order[:number]]
        wrong = next((o.headings for o in others if o.headings != article.headings), None)
        if wrong is None:
            raise UsageError("all articles have the same headings; give more of WikiText")
        yield f"{article.headings}\t{article.body}\tyes\n"
        yield f"{wrong}\t{article.body}\tno\n"


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Run the command line."""
    parser = documented_parser(__doc__)
    parser.add_argument("wikitext", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--words", type=int, default=4096)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args(argv)
    args.out.mkdir(parents=True, exist_ok=True)
    for split in ("train", "valid"):
        source = args.wikitext / f"{split}.txt"
        found = list(articles(read_lines(str(source)), args.words))
        if len(found) < 2:
            raise UsageError(
                f"{source}: has {len(found)} articles with headings; give a text of WikiText"
            )
        with write_text(str(args.out / f"{split}.tsv")) as stream:
            stream.write("headings\tbody\tbelongs\n")
            stream.writelines(examples(found, args.seed))


if __name__ == "__main__":
    main()
