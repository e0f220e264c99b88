"""What the processes of one test run make once and share."""

import contextlib
import fcntl
import shutil
from pathlib import Path
from typing import Callable, Iterator


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Be the only one, among the processes that lock this *path*."""
    with open(path, "w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def filled(folder: Path, fill: Callable[[Path], object]) -> Path:
    """*folder*, which ``fill(folder)`` fills unless another process of the test run has.

    Nothing is written to the folder afterwards: other tests may be reading it.
    """
    done = folder.with_name(f"{folder.name}.done")
    with locked(folder.with_name(f"{folder.name}.lock")):
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            fill(folder)
            done.touch()
    return folder
