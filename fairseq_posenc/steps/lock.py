"""One process at a time in a folder."""

import contextlib
import os
import socket
import time
from pathlib import Path
from typing import Dict, Iterator, Optional, Tuple

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.steps.processes import say

try:
    import fcntl
except ImportError:  # no such locks on Windows
    fcntl = None  # type: ignore[assignment]

_HELD = "FAIRSEQ_POSENC_HELD"  # the folders that processes above this one have locked, line by line
_LOOK_AGAIN = 1.0  # seconds between looks at a lock that another process holds


@contextlib.contextmanager
def hold(
    folder: Path, name: str = "", waits: bool = False, other: str = "another folder"
) -> Iterator[Tuple[Tuple[int, ...], Dict[str, str]]]:
    """Lock *folder*, which is created, while the context lasts.

    The lock also lasts as long as a process that inherited the descriptor, such as a training that
    survives the study that started it.  A folder that a process above this one holds is free for
    this one, too.

    Args:
        name: the name by which others are told of this process.
        waits: whether to wait for another process; otherwise it is an error.
        other: what to give instead of a folder that cannot be written to.

    Yields:
        file descriptors to hand to processes that shall hold the folder, too, and variables that
            tell them so.

    Raises:
        UsageError: another process has locked the folder, or it cannot be written to.
    """
    held, place = os.environ.get(_HELD, "").splitlines(), str(folder.resolve())
    variables = {_HELD: "\n".join([*held, place])}
    if place in held:
        yield (), variables
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(str(folder / ".lock"), os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise UsageError(
            f"{folder}: cannot be written to ({error.strerror}); give {other}"
        ) from error
    try:
        _lock(descriptor, folder, waits)
        with contextlib.suppress(OSError):  # a full disk: the name is for messages only
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()} {socket.gethostname()} {name}\n".encode(), 0)
        yield (descriptor,), variables
    finally:
        os.close(descriptor)


def holder(folder: Path) -> Optional[str]:
    """The process that has locked *folder*, or None."""
    try:
        descriptor = os.open(str(folder / ".lock"), os.O_RDONLY)
    except OSError:  # nobody has ever locked the folder
        return None
    try:
        if fcntl is not None:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _holder(descriptor)
    except OSError:  # a file system without locks
        return None
    finally:
        os.close(descriptor)
    return None


def _lock(descriptor: int, folder: Path, waits: bool) -> None:
    told = False
    while fcntl is not None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            found = _holder(descriptor)
            if not waits:
                raise UsageError(
                    f"{folder}: {found} is at work there; wait until that has ended, or stop it"
                ) from None
            if not told:
                say(f"{folder}: waiting for {found}")
            told = True
            time.sleep(_LOOK_AGAIN)
        except OSError:  # a file system without locks
            return
        else:
            return


def _holder(descriptor: int) -> str:
    """The process that a lock file names, and, if it was killed, the processes it left behind."""
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
