"""Lists of cases in text files: a line for each, with its parts between bars."""

import re
from importlib.util import find_spec
from pathlib import Path
from typing import List

from fairseq_posenc import packs


def rows_of(name: str) -> List[List[str]]:
    """The parts of every case in the files of a name, those of packs included.

    Empty lines, and lines that begin with #, are no cases.  A last part ``with PACK`` says that
    a case needs another pack, too: it is left out where that pack was deleted.
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
