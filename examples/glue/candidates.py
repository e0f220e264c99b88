"""Pronouns with the noun phrases that they may refer to, for --task candidate_ranking.

    fairseq-posenc script candidates.py SOURCE OUT

SOURCE has train.jsonl and val.jsonl as in SuperGLUE's WSC (the sentences of GLUE's WNLI, with their
pronouns), or train.tsv and dev.tsv: a text with its pronoun in `_ _`, what it refers to, and in
further columns other noun phrases. WSC asks of single phrases whether the pronoun refers to them:
those that are asked of the same pronoun become the candidates. As in RoBERTa's section 5.1, texts
without a right phrase are left out; so are those without a wrong one, and both are counted.

OUT/input0/SPLIT gets what stands before the pronoun, OUT/input1/SPLIT what stands after it,
OUT/input2/SPLIT the right phrases, OUT/input3/SPLIT and so on the others. OUT/count has the number
of these files, OUT/examples that of the training examples.
"""

import itertools
import os
import re
import sys
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.lines import read_json_lines, read_lines, write_text
from fairseq_posenc.basics.records import field, some_text
from fairseq_posenc.flags.usage import documented_parser

MARKED = re.compile(r"_([^_\s][^_]*)_")


class Example(NamedTuple):
    """A text with a gap in place of the pronoun.

    Args:
        left: the text before it.
        right: the text after it.
        candidates: noun phrases, the right one first.
    """

    left: str
    right: str
    candidates: List[str]


def around(text: str, index: int, pronoun: str, where: str) -> Tuple[str, str]:
    """The text before and after a pronoun at the start of word *index*, counted from 0.

    >>> around("She said (he left).", 2, "he", "")
    ('She said (', ' left).')
    """
    words = text.split()
    count = len(pronoun.split())
    found = " ".join(words[index : index + count])
    start = found.lower().find(pronoun.lower())
    if start < 0:
        raise UsageError(
            f"{where}: word {index} is {found!r}, not {pronoun!r}; is this a file of WSC?"
        )
    before = [*words[:index], found[:start]]
    after = [found[start + len(pronoun) :], *words[index + count :]]
    return " ".join(before), " ".join(after)


def read_wsc(path: str) -> Iterator[Example]:
    """The examples of a file of SuperGLUE's WSC."""
    asked: Dict[Tuple[str, int], List[Tuple[str, bool]]] = {}
    gaps: Dict[Tuple[str, int], Tuple[str, str]] = {}
    for number, record in read_json_lines(path):
        where = f"{path}: line {number}"
        text, label = some_text(record, "text", where), field(record, "label", bool, where)
        target = record.get("target")
        pronoun, phrase = (some_text(target, name, where) for name in ("span2_text", "span1_text"))
        index = field(target, "span2_index", int, where)
        key = (text, index)
        gaps[key] = around(text, index, pronoun, where)
        asked.setdefault(key, []).append((" ".join(phrase.split()), label))
    for key, phrases in asked.items():
        wrong = list(dict.fromkeys(phrase for phrase, right in phrases if not right))
        for phrase, right in phrases:
            if right:
                yield Example(*gaps[key], [phrase, *wrong])
        if not any(right for _, right in phrases):
            yield Example(*gaps[key], [])


def read_tsv(path: str) -> Iterator[Example]:
    """The examples of a TSV file."""
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip():
            continue
        text, *phrases = (cell.strip() for cell in line.split("\t"))
        marked = list(MARKED.finditer(text))
        if len(marked) != 1:
            raise UsageError(f"{path}: line {number}: has {len(marked)} pronouns in _ _; mark one")
        if not all(phrases[:2]) or len(phrases) < 2:
            raise UsageError(
                f"{path}: line {number}: give the right noun phrase and at least one other"
            )
        (found,) = marked
        left, right = text[: found.start()], text[found.end() :]
        yield Example(left, right, [phrase for phrase in phrases if phrase])


def columns_of(examples: Sequence[Example], most: int) -> List[List[str]]:
    """The lines of each file. The space before a phrase belongs to it, for byte-level BPE."""
    columns: List[List[str]] = [[], [], *([] for _ in range(most))]
    for left, right, candidates in examples:
        bare = left.rstrip()
        space = " " * (bare != left and bool(bare))
        cells = [bare, right, *(space + phrase for phrase in candidates)]
        for column, cell in itertools.zip_longest(columns, cells, fillvalue=""):
            column.append(cell)
    return columns


def extract(source: str, out: str) -> None:
    """Write the files of all splits."""
    sets: Dict[str, List[Example]] = {}
    for split, names in (("train", ("train",)), ("valid", ("val", "dev"))):
        paths = [os.path.join(source, name + end) for name in names for end in (".jsonl", ".tsv")]
        path = next((path for path in paths if os.path.isfile(path)), None)
        if path is None:
            raise UsageError(f"{source}: has none of {', '.join(map(os.path.basename, paths))}")
        found = list((read_wsc if path.endswith(".jsonl") else read_tsv)(path))
        sets[split] = [example for example in found if len(example.candidates) > 1]
        if not sets[split]:
            raise UsageError(f"{path}: has no text with a right and a wrong noun phrase")
        print(
            f"{path}: {len(sets[split])} texts, {len(found) - len(sets[split])} without a right or "
            "without a wrong phrase left out",
            file=sys.stderr,
        )
    most = max(len(example.candidates) for found in sets.values() for example in found)
    for split, examples in sets.items():
        for number, lines in enumerate(columns_of(examples, most)):
            with write_text(f"{out}/input{number}/{split}") as stream:
                stream.writelines(line + "\n" for line in lines)
        with write_text(f"{out}/label/{split}") as stream:
            stream.writelines("0\n" for _ in examples)
    for name, number in (("count", most + 2), ("examples", len(sets["train"]))):
        with write_text(f"{out}/{name}") as stream:
            stream.write(f"{number}\n")


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Run the command line."""
    parser = documented_parser(__doc__, "source", "out")
    args = parser.parse_args(argv)
    extract(args.source, args.out)


if __name__ == "__main__":
    main()
