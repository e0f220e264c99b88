"""One process at a time in a folder."""

import contextlib
import os
import socket
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, Optional, Tuple

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.steps.processes import say

try:
    import fcntl
except ImportError:  # no such locks on Windows
    fcntl = None  # type: ignore[assignment]

_HELD = "FAIRSEQ_POSENC_HELD"  # the folders that processes above this one have locked, line by line
_LOOK_AGAIN = 1.0  # seconds between looks at a lock that another process holds


class Held(Exception):
    """Another process holds the lock; the argument names the process."""


@contextlib.contextmanager
def hold(
    folder: Path,
    name: str = "",
    waiting: Optional[Callable[[str], None]] = None,
    advice: str = "give another folder",
) -> Iterator[Tuple[int, ...]]:
    """Lock *folder*, which is created, while the context lasts.

    The lock also lasts as long as a process that inherited the descriptor, such as a training that
    survives the study that started it.  A folder that a process above this one holds is free for
    this one, too.

    Args:
        folder: the folder to lock.
        name: the name by which others are told of this process.
        waiting: is told who holds the lock, once, before it is waited for; by default it is not
            waited for.
        advice: what to do about a folder that cannot be written to.

    Yields:
        file descriptors to hand to processes that shall hold the folder, too.

    Raises:
        Held: another process has locked the folder.
        UsageError: the folder cannot be written to.
    """
    if str(folder.resolve()) in os.environ.get(_HELD, "").splitlines():
        yield ()
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(str(folder / ".lock"), os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise UsageError(f"{folder}: cannot be written to ({error.strerror}); {advice}") from error
    try:
        _lock(descriptor, waiting)
        with contextlib.suppress(OSError):  # a full disk: the name is for messages only
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()} {socket.gethostname()} {name}\n".encode(), 0)
        yield (descriptor,)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def locked(folder: Path, name: str, waits: bool, other: str = "another folder") -> Iterator[Any]:
    """Lock a folder for a step or a script.

    Args:
        folder: the folder.
        name: the name by which others are told of this process.
        waits: whether to wait for another process; otherwise it is an error.
        other: what to give instead of a folder that cannot be used.

    Yields:
        file descriptors and variables for the processes of the step.

    Raises:
        UsageError: another process is at work there, or the folder cannot be written to.
    """

    def waiting(found: str) -> None:
        say(f"{folder}: waiting for {found}")

    try:
        with hold(folder, name, waiting if waits else None, f"give {other}") as descriptors:
            yield descriptors, holding(folder)
    except Held as error:
        raise UsageError(
            f"{folder}: {error} is at work there; wait until that has ended, or stop it"
        ) from None


def holding(folder: Path) -> Dict[str, str]:
    """The variables that tell processes below this one that it holds *folder*."""
    held = os.environ.get(_HELD, "").splitlines()
    return {_HELD: "\n".join([*held, str(folder.resolve())])}


def holder(folder: Path) -> Optional[str]:
    """The process that has locked *folder*, or None."""
    if fcntl is None or not (folder / ".lock").exists():
        return None
    try:
        with hold(folder):
            return None
    except Held as error:
        return str(error)


def _lock(descriptor: int, waiting: Optional[Callable[[str], None]]) -> None:
    told = False
    while fcntl is not None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            found = _holder(descriptor)
            if waiting is None:
                raise Held(found) from None
            if not told:
                waiting(found)
            told = True
            time.sleep(_LOOK_AGAIN)
        except OSError:  # a file system without locks
            return
        else:
            return


def _holder(descriptor: int) -> str:
    """The process that a lock file names, or those that it left behind when it was killed."""
    words = os.pread(descriptor, 200, 0).decode(errors="replace").split()
    pid, host, *name = [*words, "?", "?"] if len(words) < 2 else words
    if host == socket.gethostname() and pid.isdigit() and not Path("/proc", pid).exists():
        left = " ".join(_users(descriptor))
        if left:
            name = [*name, f"(killed, left process {left})"]
    return " ".join([f"process {pid} on {host}", *name])


def _users(descriptor: int) -> Iterator[str]:
    """The processes, but for this one, that have the file of *descriptor* open."""
    own = os.fstat(descriptor)
    for place in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):  # ended meanwhile, or of another user
            if os.path.samestat(own, place.stat()) and place.parts[2] != str(os.getpid()):
                yield place.parts[2]
