"""The commands of a run as processes, which end with the study."""

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Dict, List, Mapping, NamedTuple, Sequence, Set, Tuple

PACKAGE = Path(__file__).resolve().parents[1]
_KILL_AFTER = 10.0  # seconds that a process gets to end by itself
_KILOBYTES = 1024.0  # in a megabyte


class Device(NamedTuple):
    """Where a run computes.

    Args:
        gpus: values for CUDA_VISIBLE_DEVICES; none for the CPU.
        threads: for the CPU's part.
        visible: whether to set CUDA_VISIBLE_DEVICES, which under Slurm is set already.
    """

    gpus: Tuple[str, ...] = ()
    threads: int = 1
    visible: bool = True

    def environment(self) -> Dict[str, str]:
        """The environment of its processes."""
        found = {**os.environ, "OMP_NUM_THREADS": str(self.threads), "PYTHONUNBUFFERED": "1"}
        if self.gpus and self.visible:
            found["CUDA_VISIBLE_DEVICES"] = ",".join(self.gpus)
        paths = [str(PACKAGE.parent), os.environ.get("PYTHONPATH", "")]
        found["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        return found


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


class Stopped(Exception):
    """The study is being stopped."""


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


class Processes:
    """Starts commands and waits for them, from several threads; stops all of them at once."""

    def __init__(self) -> None:
        self._running: Set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self._stopped = False

    def __call__(
        self, words: Sequence[str], log: Path, environment: Mapping[str, str], lock: Sequence[int]
    ) -> Ended:
        """Run a command.

        Args:
            words: the command.
            log: gets its output, after what it has already.
            environment: of the process.
            lock: a file descriptor that the process inherits.

        Raises:
            Stopped: the study ends.
        """
        begun = time.monotonic()
        with open(log, "ab") as stream:
            stream.write(f"$ {shlex.join(words)}\n".encode())
            stream.flush()
            with self._lock:
                if self._stopped:
                    raise Stopped
                process = subprocess.Popen(
                    program(words),
                    stdin=subprocess.DEVNULL,
                    stdout=stream,
                    stderr=stream,
                    env=dict(environment),
                    pass_fds=tuple(lock),
                    start_new_session=True,
                )
                self._running.add(process)
        try:
            status, memory = _wait(process)
        except BaseException:  # a signal, as when a job's time is up
            _signal(process, signal.SIGTERM)
            raise
        finally:
            with self._lock:
                self._running.discard(process)
        if self._stopped:
            raise Stopped
        return Ended(status, time.monotonic() - begun, memory)

    def stop(self) -> None:
        """End all processes, and start no others."""
        with self._lock:
            self._stopped = True
            running = list(self._running)
        for number in (signal.SIGTERM, signal.SIGKILL):
            for process in running:
                _signal(process, number)
            end = time.monotonic() + _KILL_AFTER
            while self._running and time.monotonic() < end:
                time.sleep(0.05)


def _signal(process: "subprocess.Popen[bytes]", number: int) -> None:
    with contextlib.suppress(OSError):  # it has ended
        os.killpg(process.pid, number)


def _wait(process: "subprocess.Popen[bytes]") -> Tuple[int, float]:
    """Exit status and largest memory, in megabytes."""
    if not hasattr(os, "wait4"):
        return process.wait(), 0.0
    _, status, usage = os.wait4(process.pid, 0)
    code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
    process.returncode = code
    return code, usage.ru_maxrss / _KILOBYTES
