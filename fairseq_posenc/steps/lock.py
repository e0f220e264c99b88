"""One process at a time in a folder, as ``examples/common/lock.sh`` has it for scripts."""

import contextlib
import os
import socket
from pathlib import Path
from typing import Iterator, Optional

from fairseq_posenc.basics.errors import UsageError

try:
    import fcntl
except ImportError:  # no such locks on Windows
    fcntl = None  # type: ignore[assignment]


class Held(Exception):
    """Another process holds the lock; the argument names it."""


@contextlib.contextmanager
def hold(folder: Path) -> Iterator[int]:
    """Lock *folder*, which is created, while the context lasts.

    The lock also lasts as long as a process that inherited the descriptor, such as a training that
    survives the study that started it.

    Yields:
        a file descriptor to hand to such processes.

    Raises:
        Held: another process has locked it.
        UsageError: the folder cannot be written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(str(folder / ".lock"), os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise UsageError(
            f"{folder}: cannot be written to ({error.strerror}); give another --output"
        ) from error
    try:
        _lock(descriptor)
        with contextlib.suppress(OSError):  # a full disk: the name is for messages only
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()} {socket.gethostname()} study\n".encode(), 0)
        yield descriptor
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> None:
    if fcntl is None:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Held(_holder(descriptor)) from None
    except OSError:  # a file system without locks
        pass


def _holder(descriptor: int) -> str:
    pid, host, *_ = [*os.pread(descriptor, 200, 0).decode(errors="replace").split(), "?", "?"]
    return f"process {pid} on {host}"


def holder(folder: Path) -> Optional[str]:
    """The process that has locked *folder*, or None."""
    if fcntl is None or not (folder / ".lock").exists():
        return None
    try:
        with hold(folder):
            return None
    except Held as error:
        return str(error)
