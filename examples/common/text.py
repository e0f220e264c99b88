"""Text files line by line: reading, atomic writing, and progress.

    python text.py FILE [FILE ...]

refuses files that are compressed or begin with a byte-order mark, for programs that do not notice.
The functions here read gzip, bzip2 and xz, and write gzip where a name ends in .gz.
"""

import argparse
import bz2
import contextlib
import gzip
import io
import itertools
import lzma
import os
import re
import sys
import time
import zlib
from typing import (
    IO,
    Any,
    Iterable,
    Iterator,
    NoReturn,
    Optional,
    Sequence,
    TextIO,
    Tuple,
)

REPORT = 30  # seconds between two lines about the progress
LEVEL = 3  # of gzip: a seventh larger than at level 9, in a quarter of its time
REFRESH = 1  # the same on a terminal, where the line is written over
# How compressed files begin, by the command that unpacks them, and what can read them here.
COMPRESSED = {
    "gunzip": rb"\x1f\x8b",
    "unzip": rb"PK\x03\x04",
    "bunzip2": rb"BZh[1-9]1AY&",
    "unxz": rb"\xfd7zXZ",
    "unzstd": rb"\x28\xb5\x2f\xfd",
}
_READERS = {"gunzip": gzip.open, "bunzip2": bz2.open, "unxz": lzma.open}
_DAMAGED = (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile)
_MARK = b"\xef\xbb\xbf"


def fail(message: str) -> NoReturn:
    """Exit with status 1 and a one-line message on standard error."""
    raise SystemExit(f"{os.path.basename(sys.argv[0])}: error: {message}")


class Progress:
    """Says on standard error how many lines are done, how many a second, and of which part.

    Args:
        name: what is being read.
    """

    def __init__(self, name: str) -> None:
        self._name, self._started = name, time.time()
        self._terminal = sys.stderr.isatty()
        self._next = self._started + (REFRESH if self._terminal else REPORT)
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
        self._next = now + (REFRESH if self._terminal else REPORT)
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

    def _rate(self, count: int) -> str:
        seconds = time.time() - self._started
        return f", {count / seconds:,.0f} a second" if seconds >= 1 else ""

    def _write(self, line: str) -> None:
        start, end = ("\r\033[K", "") if self._terminal else ("", "\n")
        print(start + line, file=sys.stderr, end=end, flush=True)


def refuse_compressed(path: str, start: bytes, readable: Iterable[str] = ()) -> Optional[str]:
    """Exit with an error if a file is compressed.

    Args:
        path: the file.
        start: its first bytes.
        readable: the entries of :data:`COMPRESSED` that are no error.

    Returns:
        the one of *readable* that it is, or None.
    """
    for command, pattern in COMPRESSED.items():
        if re.match(pattern, start):
            if command in readable:
                return command
            fail(f"{path}: is compressed; unpack it first: {command} {path}")
    return None


def read_lines(path: str, progress: Optional[Progress] = None) -> Iterator[str]:
    """Yield the lines of a UTF-8 text, without a byte-order mark, splitting at line feeds only.

    Common Crawl contains carriage returns within sentences; Python's default would break lines
    there and misalign the two languages.

    Args:
        path: the text; it may be compressed (gzip, bzip2, xz).
        progress: what is to know which part of the file has been read.
    """
    count = 0
    try:
        with contextlib.ExitStack() as stack:
            raw: Any = stack.enter_context(open(path, "rb"))
            command = refuse_compressed(path, raw.peek(16), _READERS)
            lines: Iterable[bytes] = raw
            if command:
                unpacked = stack.enter_context(_READERS[command](raw))
                lines = io.BufferedReader(unpacked)  # type: ignore[arg-type]
            if progress:
                progress.of(raw)
            for count, line in enumerate(lines, 1):
                if count == 1 and line.startswith(_MARK):
                    line = line[len(_MARK) :]
                yield line.decode().rstrip("\n")
    except _DAMAGED as error:
        fail(f"{path}: damaged ({error}); replace it")
    except UnicodeDecodeError as error:
        fail(f"{path}, line {count}: not UTF-8 ({error.reason}); convert it with iconv")
    except OSError as error:
        fail(f"{path}: {error.strerror or error}")


def read_pairs(source: str, target: str) -> Iterator[Tuple[str, str]]:
    """Yield the line pairs of two parallel texts; differing line counts are an error."""
    progress = Progress(source)
    one, two = read_lines(source, progress), read_lines(target)
    count = -1
    for count, (left, right) in enumerate(itertools.zip_longest(one, two)):
        if left is None or right is None:
            counts = [count, count]
            counts[left is None] += 1 + sum(1 for _ in (two if left is None else one))
            fail(
                f"{source} and {target} have different numbers of lines: "
                f"{counts[0]} and {counts[1]}"
            )
        progress.at(count)
        yield left, right
    progress.end(count + 1)


@contextlib.contextmanager
def atomic_writer(path: str) -> Iterator[TextIO]:
    """Write a text file that appears under its name only when it is complete.

    Args:
        path: the file; a name that ends in .gz is compressed, to the same bytes every time.
    """
    part = path + ".part"
    folder = os.path.dirname(path)
    try:
        if folder:
            os.makedirs(folder, exist_ok=True)
        with contextlib.ExitStack() as stack:
            binary: Any = stack.enter_context(open(part, "wb"))
            if path.endswith(".gz"):
                binary = stack.enter_context(gzip.GzipFile("", "wb", LEVEL, binary, mtime=0))
                binary = stack.enter_context(io.BufferedWriter(binary, 1 << 16))
            yield stack.enter_context(io.TextIOWrapper(binary, "utf-8", newline="\n"))
        os.replace(part, path)
    except OSError as error:
        fail(f"{path}: cannot be written ({error.strerror or error})")
    finally:
        if os.path.exists(part):
            os.remove(part)


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+")
    for path in parser.parse_args(argv).files:
        try:
            with open(path, "rb") as stream:
                start = stream.read(16)
        except OSError as error:
            fail(f"{path}: {error.strerror}")
        refuse_compressed(path, start)
        if start.startswith((_MARK, b"\xff\xfe", b"\xfe\xff")):
            fail(f"{path}: begins with a byte-order mark; save it as UTF-8 without one")


if __name__ == "__main__":
    main()
