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

from fairseq_posenc.basics.errors import UsageError

_KILL_AFTER = 10.0  # seconds that processes get to end by themselves
_INSIDE = "FAIRSEQ_POSENC_INSIDE"  # set for the processes of a step
_REPORT = 30.0  # seconds between two lines about a command that shows no progress
_LINGER = 10.0  # seconds that processes left by a command may go on writing to its log
_KILOBYTES = 1024.0  # in a megabyte
#: The signals that end a step, with all that it has started.
ENDING = tuple(
    getattr(signal, name) for name in ("SIGHUP", "SIGINT", "SIGTERM") if hasattr(signal, name)
)


class Signalled(Exception):
    """A signal that ends this process has arrived; the argument is its number."""


class Ended(NamedTuple):
    """How a command ended."""

    status: int  # exit status, or minus the signal
    seconds: float = 0.0  # wall time
    peak_memory_mb: float = 0.0  # largest resident memory


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
    """The processes *roots* that are alive, and all their descendants.

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


def say(text: str) -> None:
    """Print a line with the time on standard error."""
    print(time.strftime("%H:%M:%S"), text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def watched(name: str, folder: str) -> Iterator[None]:
    """Say every half a minute how long a step has been at work, and how much it has written.

    Args:
        name: the step.
        folder: a folder that the step fills; nothing is said without one.
    """
    ended, begun = threading.Event(), time.monotonic()

    def tell() -> None:
        while not ended.wait(_REPORT):
            size = 0.0
            for path in Path(folder).rglob("*"):
                with contextlib.suppress(OSError):  # the file has gone meanwhile
                    size += path.stat().st_size / 1e6 if path.is_file() else 0
            seconds = time.monotonic() - begun
            say(f"{name}: {seconds:.0f} s so far, {size:,.0f} MB in {folder}")

    if folder:
        threading.Thread(target=tell, daemon=True).start()
    try:
        yield
    finally:
        ended.set()


def run(
    command: Sequence[str],
    descriptors: Sequence[int] = (),
    variables: Mapping[str, str] = {},
    log: str = "",
) -> int:
    """Run a command; a signal ends it with all that it has started, and then this process.

    Args:
        command: its words.
        descriptors: file descriptors that it inherits.
        variables: variables for the command, besides those of this process.
        log: a file that gets its output, which is also shown on standard error.

    Returns:
        its exit status, or minus the signal that has killed it.

    Raises:
        UsageError: there is no such command.
        SystemExit: with 128 and the number of the signal, if one has arrived.
    """
    words = list(command)
    if words[0] == "fairseq-posenc":  # the copy that runs this step
        words[:1] = ["python", "-m", "fairseq_posenc"]
    outermost = _INSIDE not in os.environ
    environment = {**os.environ, **variables, _INSIDE: "1"}
    begun, output = time.monotonic(), subprocess.PIPE if log else None
    try:
        with ending_with_signals():
            process = start(words, environment, descriptors, output)
            _pass_on(process)
            try:
                shown = _show(process, log) if log else None
                ended = wait(process, begun)
                if shown is not None:
                    shown.join(_LINGER)
            except Signalled:
                end_family([process.pid])
                raise
        if shown is not None and shown.failed is not None:
            raise UsageError(f"{log}: cannot be written ({shown.failed.strerror})")
        return ended.status
    except OSError as error:
        advice = "run scripts/setup.sh or activate your environment"
        raise UsageError(f"{words[0]}: {error.strerror or error}; {advice}") from error
    except Signalled as error:
        if outermost:
            name = signal.Signals(error.args[0]).name
            say(f"stopped by {name}; start it again to go on")
        raise SystemExit(128 + error.args[0]) from None


def _pass_on(process: "subprocess.Popen[bytes]") -> None:
    """Pass on the signal by which Slurm announces the end of a job's time."""
    if hasattr(signal, "SIGUSR1"):
        signal.signal(signal.SIGUSR1, lambda number, frame: process.send_signal(number))


class _Copy(threading.Thread):
    """Copies the output of a process to a log and to standard error, until its end.

    The output is also read where it cannot be written, since a process waits for its reader.
    """

    def __init__(self, output: IO[bytes], log: str) -> None:
        super().__init__(daemon=True)
        self._output, self._log = output, log
        self.failed: Optional[OSError] = None  # why the log is not complete

    def run(self) -> None:
        with open(self._log, "ab", buffering=0) as stream:
            for block in iter(lambda: self._output.read1(1 << 16), b""):  # type: ignore
                try:
                    stream.write(block)
                except OSError as error:
                    self.failed = error
                with contextlib.suppress(OSError):  # nobody reads standard error any more
                    sys.stderr.buffer.write(block)
                    sys.stderr.flush()


def _show(process: "subprocess.Popen[bytes]", log: str) -> _Copy:
    assert process.stdout is not None
    thread = _Copy(process.stdout, log)
    thread.start()
    return thread


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
            log: gets its output, after what it has already.
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
