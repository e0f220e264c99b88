"""Run a command that shows nothing of its progress, and say how long it has been at work.

    python watch.py FOLDER COMMAND [ARGUMENT ...]

Every half a minute, a line names the command, the seconds and the size of FOLDER, which it fills.
"""

import os
import subprocess
import sys
import time
from typing import NoReturn, Sequence

from text import REPORT, fail


def size_of(folder: str) -> int:
    """The bytes of the files in a folder, 0 if there is none."""
    with_sizes = 0
    try:
        for entry in os.scandir(folder):
            with_sizes += entry.stat().st_size if entry.is_file() else 0
    except FileNotFoundError:
        pass  # also a file that the command has removed meanwhile
    return with_sizes


def watch(folder: str, command: Sequence[str], seconds: float) -> int:
    """Run *command* and report every so many *seconds*.

    Returns:
        its exit status, as a shell gives it.
    """
    started = time.time()
    process = subprocess.Popen(command)
    while True:
        try:
            status = process.wait(seconds)
            return status if status >= 0 else 128 - status
        except subprocess.TimeoutExpired:
            print(
                f"{os.path.basename(command[0])}: {time.time() - started:.0f} s so far, "
                f"{size_of(folder) / 1e6:,.0f} MB in {folder}",
                file=sys.stderr,
                flush=True,
            )


def main() -> NoReturn:
    """Run the command line."""
    folder, *command = sys.argv[1:] or ["--help"]
    if folder == "--help":
        print(__doc__, end="")
        sys.exit(0)
    if not command:
        fail("give a folder and a command; see --help")
    try:
        sys.exit(watch(folder, command, REPORT))
    except OSError as error:
        fail(f"{command[0]}: {error.strerror}")


if __name__ == "__main__":
    main()
