"""Lists of cases in text files: a line for each, with its parts between bars."""

from pathlib import Path
from typing import List


def rows_of(path: Path) -> List[List[str]]:
    """The parts of every case in a file; empty lines and those that begin with # are none."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    cases = [line for line in lines if not line.startswith("#")]
    return [[part.strip() for part in line.split(" | ")] for line in cases]
