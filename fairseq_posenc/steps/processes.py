"""Commands as processes that end with the one that started them, whatever their groups."""

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple, Union

_KILL_AFTER = 10.0  # seconds that processes get to end by themselves
_KILOBYTES = 1024.0  # in a megabyte
#: The signals that end a step, with all that it has started.
ENDING = tuple(
    getattr(signal, name) for name in ("SIGHUP", "SIGINT", "SIGTERM") if hasattr(signal, name)
)


class Signalled(Exception):
    """A signal that ends this process has arrived; the argument is its number."""


class Ended(NamedTuple):
    """How a command ended.

    Args:
        status: exit status, or minus the signal.
        seconds: wall time.
        peak_memory_mb: largest resident memory.
    """

    status: int
    seconds: float = 0.0
    peak_memory_mb: float = 0.0


def program(words: Sequence[str]) -> List[str]:
    """The process for a command as a user writes it, with this Python.

    >>> program(["fairseq-eval-lm", "data"])[1:]
    ['-m', 'fairseq_cli.eval_lm', 'data']
    """
    name, *rest = words
    if name == "python":
        return [sys.executable, *rest]
    if name == "fairseq-posenc":
        return [sys.executable, "-m", "fairseq_posenc", *rest]
    module = name.partition("-")[2].replace("-", "_")
    return [sys.executable, "-m", f"fairseq_cli.{module}", *rest]


def start(
    words: Sequence[str],
    environment: Optional[Mapping[str, str]] = None,
    descriptors: Sequence[int] = (),
    output: Union[None, int, IO[bytes]] = None,
) -> "subprocess.Popen[bytes]":
    """Start a process in a session of its own, so that a terminal's signals reach this one alone.

    Args:
        words: the process.
        environment: its variables; by default those of this process.
        descriptors: file descriptors that it inherits, such as those of locks.
        output: where its output and errors go; by default where those of this process go.
    """
    return subprocess.Popen(
        list(words),
        stdin=None if output is None else subprocess.DEVNULL,
        stdout=output,
        stderr=None if output is None else subprocess.STDOUT,
        env=None if environment is None else dict(environment),
        pass_fds=tuple(descriptors),
        start_new_session=True,
    )


def wait(process: "subprocess.Popen[bytes]", begun: float) -> Ended:
    """Wait for a process that was started at *begun*, on the clock ``time.monotonic``."""
    if not hasattr(os, "wait4"):
        return Ended(process.wait(), time.monotonic() - begun)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
    memory = usage.ru_maxrss / _KILOBYTES
    return Ended(process.returncode, time.monotonic() - begun, memory)


@contextlib.contextmanager
def ending_with_signals() -> Iterator[None]:
    """While the context lasts, a signal of :data:`ENDING` raises :class:`Signalled`.

    A signal that is ignored, as HUP under nohup, stays so.
    """

    def stop(number: int, frame: object) -> None:
        for other in ENDING:  # one is enough
            signal.signal(other, signal.SIG_IGN)
        raise Signalled(number)

    before = {n: signal.getsignal(n) for n in ENDING if signal.getsignal(n) is not signal.SIG_IGN}
    for number in before:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def end_family(roots: Sequence[int], kill_after: float = _KILL_AFTER) -> None:
    """End processes and all below them; those that do not end by themselves are killed.

    Args:
        roots: process numbers.
        kill_after: seconds that the processes get.
    """
    seen: Set[int] = set(roots)  # a process whose parent has ended belongs to another
    told: Set[int] = set()
    end = time.monotonic() + kill_after
    while True:
        alive = _family(seen)
        if not alive:
            return
        late = time.monotonic() >= end
        for pid in alive if late else [pid for pid in alive if pid not in told]:
            with contextlib.suppress(OSError):  # the process has ended
                os.kill(pid, signal.SIGKILL if late else signal.SIGTERM)
        seen.update(alive)
        told.update(alive)
        time.sleep(0.05)


def _family(roots: Set[int]) -> List[int]:
    """Those of the processes that are alive, and all below them.

    A script comes before its command: if the command ended first, the script could start another.
    """
    parents = dict(_processes())
    depths = {}
    for pid in parents:
        above, depth = pid, 0
        while above in parents and above not in roots:
            above, depth = parents[above], depth + 1
        if above in roots and pid != os.getpid():
            depths[pid] = depth
    return sorted(depths, key=depths.__getitem__)


def _processes() -> Iterator[Tuple[int, int]]:
    """The number and the parent of every process, except zombies."""
    if Path("/proc/self/stat").exists():
        for path in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):  # the process has ended meanwhile
                state, parent, *_ = path.read_text(errors="replace").rpartition(") ")[2].split()
                if state not in "ZX":
                    yield int(path.parent.name), int(parent)
        return
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid=,state="], stdout=subprocess.PIPE)
    for line in listed.stdout.decode(errors="replace").splitlines():
        pid, own_parent, own_state = line.split()[:3]
        if own_state[0] not in "ZX":
            yield int(pid), int(own_parent)


class Stopped(Exception):
    """The commands of :class:`Processes` are being ended."""


class Processes:
    """Starts commands and waits for them, from several threads; ends all of them at once."""

    def __init__(self) -> None:
        self._running: Set[int] = set()
        self._lock = threading.Lock()
        self._stopped = False

    def __call__(
        self,
        words: Sequence[str],
        log: Path,
        environment: Mapping[str, str],
        descriptors: Sequence[int],
    ) -> Ended:
        """Run a command, as :func:`program` reads it.

        Args:
            words: the command.
            log: gets its output, after what it has already.
            environment: variables of the process.
            descriptors: file descriptors that the process inherits.

        Raises:
            Stopped: all commands are being ended.
        """
        begun = time.monotonic()
        with open(log, "ab") as stream:
            stream.write(f"$ {shlex.join(words)}\n".encode())
            stream.flush()
            with self._lock:
                if self._stopped:
                    raise Stopped
                process = start(program(words), environment, descriptors, stream)
                self._running.add(process.pid)
        try:
            ended = wait(process, begun)
        except BaseException:  # a signal, as when a job's time is up
            end_family([process.pid])
            raise
        finally:
            with self._lock:
                self._running.discard(process.pid)
        if self._stopped:
            raise Stopped
        return ended

    def stop(self) -> None:
        """End all processes, and start no others."""
        with self._lock:
            self._stopped = True
            running = list(self._running)
        end_family(running)
