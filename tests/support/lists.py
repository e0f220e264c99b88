"""Reads lists of test cases from text files: one case per line, with fields between bars."""

import re
from importlib.util import find_spec
from pathlib import Path
from typing import List

from fairseq_posenc import packs


def rows_of(name: str) -> List[List[str]]:
    """The fields of every case in all files called *name* below tests/, including packs' files.

    Empty lines, and lines that begin with #, are skipped.  A last field ``with PACK`` means that
    the case needs a further pack; the case is left out if that pack is not installed.
    """
    files = sorted(Path(__file__).parents[1].rglob(name))
    lines = [line for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    cases = [line for line in lines if line.strip() and not line.startswith("#")]
    rows = [[part.strip() for part in line.split(" | ")] for line in cases]
    ends = [re.fullmatch(r"with (\w+)", row[-1]) for row in rows]
    return [
        row[:-1] if end else row
        for row, end in zip(rows, ends)
        if end is None or find_spec(f"{packs.__name__}.{end.group(1)}")
    ]
