"""Text line by line, from a file or standard input to a file or standard output, with progress."""

import contextlib
import sys
from typing import IO, Iterable, Iterator, Optional

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.files import replace_file
from fairseq_posenc.basics.progress import Progress
from fairseq_posenc.basics.standard import standard_input, standard_output

#: Lines read before the model is run, unless they are typed.
BUFFER = 512


def write_lines(lines: Iterable[str], stream: IO[str], progress: Optional[Progress] = None) -> None:
    """Write *lines* as they come."""
    count = 0
    for count, line in enumerate(lines, 1):
        stream.write(line + "\n")
        stream.flush()
        if progress is not None:
            progress.at(count)
    if progress is not None:
        progress.end(count)


@contextlib.contextmanager
def opened(path: Optional[str], flag: str) -> Iterator[IO[bytes]]:
    """The file of a flag, or without one standard input.

    Raises:
        UsageError: the file cannot be read, or standard input is closed.
    """
    if path is None:
        yield standard_input()
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
            write_lines(lines, out, Progress(path, log=False))


def write_standard_output(lines: Iterable[str]) -> None:
    """Write *lines* to standard output as they come."""
    out = standard_output()
    shown = None if sys.stdout.isatty() else Progress("standard output", log=False)
    write_lines(lines, out, shown)
