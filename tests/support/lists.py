"""Lists of cases in text files: a line for each, with its parts between bars."""

from pathlib import Path
from typing import List


def rows_of(name: str) -> List[List[str]]:
    """The parts of every case in the files of a name, those of packs included.

    Empty lines and those that begin with # are none.
    """
    files = sorted(Path(__file__).parents[1].rglob(name))
    lines = [line for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    cases = [line for line in lines if line.strip() and not line.startswith("#")]
    return [[part.strip() for part in line.split(" | ")] for line in cases]
