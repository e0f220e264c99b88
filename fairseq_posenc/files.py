"""Writing files that are complete or absent."""

import contextlib
import os
import stat
from pathlib import Path
from typing import Iterator, Union

from fairseq_posenc.errors import UsageError

FilePath = Union[str, "os.PathLike[str]"]


@contextlib.contextmanager
def replace_file(path: FilePath, flag: str = "") -> Iterator[Path]:
    """Write a temporary file that atomically replaces *path* at the end.

    A symbolic link is followed: the file that it points to is replaced, and the link stays.

    Args:
        path: the file to write.
        flag: the flag that *path* was given by, for error messages.

    Yields:
        the path of a temporary file in the same folder, which is removed if writing fails.

    Raises:
        UsageError: *path* is a folder, a device or a pipe, or cannot be written.
    """
    shown = f"{flag} {os.fspath(path)}".strip()
    target = Path(os.path.realpath(os.fspath(path)))
    _check_replaceable(target, shown)
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        yield partial
        with open(partial, "rb") as file:
            os.fsync(file.fileno())
        os.replace(partial, target)
    except OSError as error:
        raise UsageError(
            f"{shown}: cannot be written ({error.strerror or error}); give a file in an existing "
            "folder with free space"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            partial.unlink()


def check_writable(path: FilePath, flag: str = "") -> None:
    """Check, before a long computation, that its result can be written.

    Args:
        path: the file to write.
        flag: the flag that *path* was given by, for error messages.

    Raises:
        UsageError: its folder does not exist, or it is a folder, a device or a pipe.
    """
    shown = f"{flag} {os.fspath(path)}".strip()
    target = Path(os.path.realpath(os.fspath(path)))
    _check_replaceable(target, shown)
    if not target.parent.is_dir():
        raise UsageError(f"{shown}: there is no folder {target.parent}; create it first")


def _check_replaceable(target: Path, shown: str) -> None:
    try:
        mode = target.stat().st_mode
    except OSError:  # the file or its folder does not exist
        return
    if stat.S_ISDIR(mode):
        raise UsageError(f"{shown}: is a directory; give the name of a file to write")
    if not stat.S_ISREG(mode):
        kind = "a pipe" if stat.S_ISFIFO(mode) else "a device or socket"
        raise UsageError(f"{shown}: is {kind}, not a file; give the name of a file to write")
