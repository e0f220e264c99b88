"""Standard input, output and error: UTF-8 whatever the locale, one line where they cannot be used.

How far long work has come is said on standard error.
"""

import contextlib
import errno
import io
import os
import sys
import time
from typing import IO, Iterator, Optional

from fairseq_posenc.basics.errors import UsageError

REPORT = 30  # seconds between two lines in a log
REFRESH = 1  # seconds between two updates of a terminal's line, which is written over


def standard_input() -> IO[bytes]:
    """Standard input as bytes.

    Raises:
        UsageError: standard input is closed.
    """
    if sys.stdin is None:
        raise UsageError("standard input: is closed; give a file, or a text by < or |")
    return sys.stdin.buffer


def standard_output() -> IO[str]:
    """Standard output as UTF-8; closing it leaves standard output open.

    Raises:
        UsageError: standard output is closed.
    """
    if sys.stdout is None:
        raise UsageError("standard output: is closed; give a file, or send it there by >")
    return open(sys.stdout.fileno(), "w", encoding="utf-8", newline="\n", closefd=False)


@contextlib.contextmanager
def printing() -> Iterator[None]:
    """Say in one line that standard output cannot be written, and nothing if its reader is gone.

    What the encoding of the locale does not have is printed as in a string of Python, ``\\xb2``.

    Raises:
        UsageError: the disk is full.
        SystemExit: nobody reads on, such as head.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    if sys.stderr is None:  # closed by the caller, where progress is said
        sys.stderr = open(os.devnull, "w", encoding="utf-8")
    try:
        yield
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        if error.filename is not None or error.errno not in (errno.EPIPE, errno.ENOSPC):
            raise
        # otherwise Python tries again when it ends
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if error.errno == errno.EPIPE:
            raise SystemExit(1) from None
        raise UsageError(
            f"standard output: cannot be written ({error.strerror}); free some space"
        ) from error


class Progress:
    """Says on standard error how many lines are done, how many a second, and of which part.

    Args:
        name: what is being worked on.
        log: whether to report where standard error is no terminal, too.
    """

    def __init__(self, name: str, log: bool = True) -> None:
        self._name, self._started = name, time.time()
        self._terminal = sys.stderr.isatty()
        self._shown = self._terminal or log
        self._next = self._started + self._pause()
        self._raw: Optional[IO[bytes]] = None
        self._size = 0

    def of(self, raw: IO[bytes]) -> None:
        """Take the part that is done from the position in a file, compressed or not."""
        self._raw, self._size = raw, os.fstat(raw.fileno()).st_size

    def at(self, count: int) -> None:
        """Report *count* lines, if the last report is some time ago."""
        now = time.time()
        if now < self._next:
            return
        self._next = now + self._pause()
        part = ""
        if self._raw is not None and self._size and not self._raw.closed:
            part = f", {100 * self._raw.tell() // self._size} %"
        self._write(f"{self._name}: {count} lines so far{self._rate(count)}{part}")

    def end(self, count: int) -> None:
        """Report that all *count* lines are done."""
        seconds = time.time() - self._started
        self._write(f"{self._name}: {count} lines in {seconds:.0f} s{self._rate(count)}")
        if self._terminal:
            print(file=sys.stderr)

    def _pause(self) -> float:
        return REFRESH if self._terminal else REPORT

    def _rate(self, count: int) -> str:
        seconds = time.time() - self._started
        return f", {count / seconds:,.0f} a second" if seconds >= 1 else ""

    def _write(self, line: str) -> None:
        start, end = ("\r\033[K", "") if self._terminal else ("", "\n")
        if self._shown:
            print(start + line, file=sys.stderr, end=end, flush=True)
