"""Make a classification task on long documents: do these headings belong to this article?

    python headings.py WIKITEXT OUT [WORDS]

WIKITEXT has train.txt and valid.txt of WikiText. An article gives two examples: its first WORDS
(4096) words without headings, once with their own headings, and once with the headings of another
article. OUT gets train.tsv and dev.tsv, which `examples/glue/prepare.sh own` reads.
"""

import random
import re
import sys
from pathlib import Path
from typing import Iterable, Iterator, List, NamedTuple, Sequence

TITLE = re.compile(r"= (?!=).*[^=\s] =")
HEADING = re.compile(r"(= )+(.*?)( =)+")
LEAST_HEADINGS = 2


class Article(NamedTuple):
    """An article: the headings of its sections, and its text without them."""

    headings: str
    body: str


def _clean(line: str) -> str:
    line = HEADING.sub(r"\2", line) if HEADING.fullmatch(line) else line
    return re.sub(r" @([-,.])@ ", r"\1", line).replace("<unk>", "unk")


def articles(lines: Iterable[str], words: int) -> Iterator[Article]:
    """Yield the articles of WikiText that have at least two headings.

    Args:
        lines: the text.
        words: maximum length of a body; headings beyond it are left out.
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
    """Yield lines of TSV: every article with its own headings, and with another's headings.

    Args:
        found: the articles.
        seed: the seed of the articles' order, which decides from where wrong headings come.
    """
    order = random.Random(seed).sample(list(found), len(found))
    for number, article in enumerate(order):
        others = [*order[number + 1 :], *order[:number]]
        wrong = next((o.headings for o in others if o.headings != article.headings), None)
        if wrong is None:
            sys.exit("all articles have the same headings; give a longer part of WikiText")
        yield f"{article.headings}\t{article.body}\tyes\n"
        yield f"{wrong}\t{article.body}\tno\n"


def main(wikitext: str, out: str, words: str = "4096") -> None:
    """Write both files."""
    Path(out).mkdir(parents=True, exist_ok=True)
    for split, name in (("train", "train.tsv"), ("valid", "dev.tsv")):
        source = Path(wikitext, f"{split}.txt")
        found = list(articles(source.read_text(encoding="utf-8").split("\n"), int(words)))
        if len(found) < 2:
            sys.exit(f"{source}: has {len(found)} articles with headings; give a text of WikiText")
        lines = ["headings\tbody\tbelongs\n", *examples(found, 1)]
        Path(out, name).write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:]) if len(sys.argv) in (3, 4) else sys.exit(__doc__)
