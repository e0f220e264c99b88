"""Shared by the scripts under former names: run the command of this checkout instead."""

import os
import sys
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parents[1]


def become(*command: str) -> NoReturn:
    """Replace this process by ``python -m fairseq_posenc COMMAND`` with the same arguments."""
    folders = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(folders)
    words = [sys.executable, "-m", "fairseq_posenc", *command, *sys.argv[1:]]
    os.execv(sys.executable, words)
