"""CAIL2019-SCM as a choice between two: which of the cases B and C is more similar to A.

    fairseq-posenc script cail.py SOURCE OUT

SOURCE is the folder of the published files (*.json), or one of them, with one triple a line,
{"A": "...", "B": "...", "C": "...", "label": "B"}. All triples are split 6:2:2 into train, valid
and test (RoFormer, section 4.5.3), by a hash of their text: the same triples give the same split,
whatever the names and the order of the files. OUT is written as choices.py does, with A as the
passage, B and C as choices, and the test set as valid1.
"""

import hashlib
import os
import sys
from typing import Dict, Iterator, List, Optional, Sequence

from choices import Record, write

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.lines import read_json_lines
from fairseq_posenc.basics.records import some_text
from fairseq_posenc.flags.usage import documented_parser

CASES, LABELS = ("A", "B", "C"), ("B", "C")
SHARES = {"train": 6, "valid": 2, "valid1": 2}


def triples(path: str) -> Iterator[Record]:
    """The triples of a file; leaves with one line at the first mistake."""
    for number, entry in read_json_lines(path):
        where = f"{path}: line {number}"
        first, *others = (" ".join(some_text(entry, name, where).split()) for name in CASES)
        label = some_text(entry, "label", where)
        if label not in LABELS:
            raise UsageError(f"{where}: label {label!r}: expected B or C")
        yield Record(where, first, others, LABELS.index(label))


def _hash(record: Record) -> str:
    text = "\n".join([record.passage, *record.choices])
    return hashlib.sha256(text.encode()).hexdigest()


def split(found: Sequence[Record]) -> Dict[str, List[Record]]:
    """The records of each split; those that occur twice are taken once.

    Args:
        found: all records.
    """
    ordered = [record for _, record in sorted({_hash(record): record for record in found}.items())]
    if len(ordered) < sum(SHARES.values()):
        raise UsageError(
            f"{len(ordered)} triples are too few to split; expected {sum(SHARES.values())} or more"
        )
    ends = [0]
    for share in SHARES.values():
        ends.append(ends[-1] + share)
    ends = [len(ordered) * end // ends[-1] for end in ends]
    return {name: ordered[start:end] for name, start, end in zip(SHARES, ends, ends[1:])}


def extract(source: str, out: str) -> None:
    """Write the texts and labels of all triples."""
    paths = [source]
    if os.path.isdir(source):
        paths = sorted(
            os.path.join(source, name) for name in os.listdir(source) if name.endswith(".json")
        )
        if not paths:
            raise UsageError(f"{source}: has no file *.json; give the folder of CAIL2019-SCM")
    found = [record for path in paths for record in triples(path)]
    sets = split(found)
    twice = len(found) - sum(map(len, sets.values()))
    if twice:
        print(f"{source}: {twice} triples occur twice and are taken once", file=sys.stderr)
    write("cail", sets, source, out)


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Run the command line."""
    parser = documented_parser(__doc__, "source", "out")
    args = parser.parse_args(argv)
    extract(args.source, args.out)


if __name__ == "__main__":
    main()
