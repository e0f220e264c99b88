"""Running a command of a step: its output is shown and kept, and a signal ends all of it."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Iterator, Mapping, Sequence

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.steps.processes import Signalled, end_family, ending_with_signals, start, wait

_INSIDE = "FAIRSEQ_POSENC_INSIDE"  # set for the processes of a step
_REPORT = 30.0  # seconds between two lines about a command that shows no progress
_LINGER = 10.0  # seconds that processes left by a command may go on writing to its log


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
            sizes = [path.stat().st_size for path in Path(folder).rglob("*") if path.is_file()]
            seconds, size = time.monotonic() - begun, sum(sizes) / 1e6
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
                return ended.status
            except Signalled:
                end_family([process.pid])
                raise
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


def _show(process: "subprocess.Popen[bytes]", log: str) -> threading.Thread:
    def copy() -> None:
        assert process.stdout is not None
        with open(log, "ab", buffering=0) as stream:
            for block in iter(lambda: process.stdout.read1(1 << 16), b""):  # type: ignore
                stream.write(block)
                sys.stderr.buffer.write(block)
                sys.stderr.flush()

    thread = threading.Thread(target=copy, daemon=True)
    thread.start()
    return thread
