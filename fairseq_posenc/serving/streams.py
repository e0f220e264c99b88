"""Text line by line, from a file or standard input to a file or standard output, with progress."""

import codecs
import contextlib
import errno
import itertools
import os
import sys
import time
from typing import IO, Iterable, Iterator, List, Optional

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.files import replace_file

#: Lines read before the model is run, unless they are typed.
BUFFER = 512


def read_lines(stream: IO[bytes]) -> Iterator[str]:
    """The lines of a stream, without a byte-order mark; only a line feed ends one.

    Raises:
        UsageError: a line is not UTF-8; it is named.
    """
    for number, line in enumerate(stream, 1):
        if number == 1 and line.startswith(codecs.BOM_UTF8):
            line = line[len(codecs.BOM_UTF8) :]
        try:
            yield line.rstrip(b"\r\n").decode("utf-8")
        except UnicodeDecodeError as error:
            raise UsageError(
                f"line {number} of the input: byte {error.start + 1} of it is not UTF-8; convert "
                "the text, for example with iconv"
            ) from error


def in_blocks(lines: Iterable[str], size: int) -> Iterator[List[str]]:
    """Lists of *size* lines; the last can be shorter."""
    source = iter(lines)
    return iter(lambda: list(itertools.islice(source, size)), [])


class Progress:
    """The number of lines and the rate, on a terminal.

    Args:
        stream: shown if it is a terminal.
        seconds: least time between two updates.
    """

    def __init__(self, stream: IO[str], seconds: float = 0.5) -> None:
        self._stream = stream if stream.isatty() else None
        self._seconds, self._begun = seconds, time.monotonic()
        self._shown, self._count = self._begun, 0

    def add(self, last: bool = False) -> None:
        """Count a line, or with *last* none, and end the display."""
        self._count += not last
        now = time.monotonic()
        if self._stream is None or (not last and now < self._shown + self._seconds):
            return
        rate = self._count / max(now - self._begun, 1e-9)
        end = "\n" if last else ""
        self._stream.write(f"\r{self._count:,} lines, {rate:,.1f} a second {end}")
        self._stream.flush()
        self._shown = now


def write_lines(lines: Iterable[str], stream: IO[str], progress: Optional[Progress] = None) -> None:
    """Write *lines* as they come."""
    for line in lines:
        stream.write(line + "\n")
        stream.flush()
        if progress is not None:
            progress.add()
    if progress is not None:
        progress.add(last=True)


@contextlib.contextmanager
def opened(path: Optional[str], flag: str) -> Iterator[IO[bytes]]:
    """The file of a flag, or without one standard input.

    Raises:
        UsageError: the file cannot be read.
    """
    if path is None:
        yield sys.stdin.buffer
        return
    try:
        stream = open(path, "rb")
    except OSError as error:
        reason = error.strerror or error
        raise UsageError(f"{flag} {path}: cannot be read ({reason})") from error
    with stream:
        yield stream


def write_file(path: str, flag: str, lines: Iterable[str]) -> None:
    """Write *lines* to the file of a flag, complete or not at all.

    Raises:
        UsageError: the file cannot be written.
    """
    with replace_file(path, flag) as partial:
        with open(partial, "w", encoding="utf-8", newline="\n") as out:
            write_lines(lines, out, Progress(sys.stderr))


def write_standard_output(lines: Iterable[str]) -> None:
    """Write *lines* to standard output as they come."""
    out = open(sys.stdout.fileno(), "w", encoding="utf-8", newline="\n", closefd=False)
    write_lines(lines, out, None if sys.stdout.isatty() else Progress(sys.stderr))


@contextlib.contextmanager
def standard_output() -> Iterator[None]:
    """Say in one line that standard output cannot be written, and nothing if its reader is gone.

    Raises:
        UsageError: the disk is full.
        SystemExit: nobody reads on, such as head.
    """
    try:
        yield
        sys.stdout.flush()
    except OSError as error:
        if error.filename is not None or error.errno not in (errno.EPIPE, errno.ENOSPC):
            raise
        # or Python tries again when it ends
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if error.errno == errno.EPIPE:
            raise SystemExit(1) from None
        raise UsageError(
            f"standard output: cannot be written ({error.strerror}); free some space"
        ) from error
