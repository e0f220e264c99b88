"""Standard input, output and error: UTF-8 in every locale, with errors on one line."""

import contextlib
import errno
import io
import os
import sys
from typing import IO, Iterator

from fairseq_posenc.basics.errors import UsageError


def standard_input() -> IO[bytes]:
    """Standard input as bytes."""
    if sys.stdin is None:
        raise UsageError("standard input: is closed; give a file, or redirect one with < or |")
    return sys.stdin.buffer


def standard_output() -> IO[str]:
    """A UTF-8 stream to standard output; closing the stream leaves standard output open."""
    if sys.stdout is None:
        raise UsageError("standard output: is closed; give a file, or redirect it with >")
    return open(sys.stdout.fileno(), "w", encoding="utf-8", newline="\n", closefd=False)


@contextlib.contextmanager
def printing() -> Iterator[None]:
    """A context that reports a full disk in one line, and ends silently if the reader is gone.

    Characters that the locale's encoding lacks are printed as Python escapes, such as ``\\xb2``.

    Raises:
        UsageError: the disk is full.
        SystemExit: the program that reads standard output, such as head, has stopped.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    if sys.stderr is None:  # closed by the caller; progress bars need it
        sys.stderr = open(os.devnull, "w", encoding="utf-8")
    try:
        yield
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        if error.filename is not None or error.errno not in (errno.EPIPE, errno.ENOSPC):
            raise
        # without this, Python would try to write the rest when it exits
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if error.errno == errno.EPIPE:
            raise SystemExit(1) from None
        raise UsageError(
            f"standard output: cannot be written ({error.strerror}); free some disk space"
        ) from error
