"""Text files line by line: reading, atomic writing, and parallel mapping.

    python text.py FILE [FILE ...]

refuses files that are compressed or begin with a byte-order mark, for programs that do not notice.
"""

import argparse
import contextlib
import itertools
import multiprocessing
import multiprocessing.connection
import os
import re
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import (
    Any,
    Callable,
    Iterable,
    Iterator,
    List,
    NoReturn,
    Optional,
    Sequence,
    TextIO,
    Tuple,
)

CHUNK = 2000  # lines sent to a worker process at a time
REPORT = 30  # seconds between two lines about the progress
# How compressed files begin, by the command that unpacks them.
COMPRESSED = {
    "gunzip": rb"\x1f\x8b",
    "unzip": rb"PK\x03\x04",
    "bunzip2": rb"BZh[1-9]1AY&",
    "unxz": rb"\xfd7zXZ",
}
_function = None  # the function that a worker process applies to each line


def fail(message: str) -> NoReturn:
    """Exit with status 1 and a one-line message on standard error."""
    raise SystemExit(f"{os.path.basename(sys.argv[0])}: error: {message}")


def refuse_compressed(path: str, start: bytes) -> None:
    """Exit with an error if a file is compressed.

    Args:
        path: the file.
        start: its first bytes.
    """
    for command, pattern in COMPRESSED.items():
        if re.match(pattern, start):
            fail(f"{path}: is compressed; unpack it first: {command} {path}")


def read_lines(path: str) -> Iterator[str]:
    """Yield the lines of a UTF-8 text, without a byte-order mark, splitting at line feeds only.

    Common Crawl contains carriage returns within sentences; Python's default would break lines
    there and misalign the two languages.
    """
    try:
        with open(path, encoding="utf-8-sig", newline="\n") as stream:
            refuse_compressed(path, stream.buffer.peek(16))
            for line in stream:
                yield line.rstrip("\n")
    except OSError as error:
        fail(f"{path}: {error.strerror}")
    except UnicodeDecodeError as error:
        fail(f"{path}: not UTF-8 ({error.reason})")


def read_pairs(source: str, target: str) -> Iterator[Tuple[str, str]]:
    """Yield the line pairs of two parallel texts; differing line counts are an error."""
    for one, two in itertools.zip_longest(read_lines(source), read_lines(target)):
        if one is None or two is None:
            fail(f"{source} and {target} have different numbers of lines")
        yield one, two


@contextlib.contextmanager
def atomic_writer(path: str) -> Iterator[TextIO]:
    """Write a text file that appears under its name only when it is complete."""
    part = path + ".part"
    folder = os.path.dirname(path)
    try:
        if folder:
            os.makedirs(folder, exist_ok=True)
        with open(part, "w", encoding="utf-8", newline="\n") as stream:
            yield stream
        os.replace(part, path)
    except OSError as error:
        fail(f"{path}: cannot be written ({error.strerror or error})")
    finally:
        if os.path.exists(part):
            os.remove(part)


def _start_worker(make: Callable[..., Callable[[str], Any]], arguments: tuple) -> None:
    global _function
    _function = make(*arguments)


def _start_child(make: Callable[..., Callable[[str], Any]], arguments: tuple) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _start_worker(make, arguments)


def _end_with_parent() -> None:
    """End this process when its parent is killed; otherwise it would wait for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    multiprocessing.connection.wait([parent.sentinel])
    os._exit(1)


def _apply(lines: List[str]) -> List[Any]:
    assert _function is not None
    return [_function(line) for line in lines]


def _batches(items: Iterable[Any], size: int) -> Iterator[List[Any]]:
    iterator = iter(items)
    return iter(lambda: list(itertools.islice(iterator, size)), [])


def parallel_map(
    make: Callable[..., Callable[[str], Any]],
    arguments: tuple,
    path: str,
    workers: int,
) -> Iterator[Any]:
    """Apply a function to every line of a text, in order, in several processes.

    Args:
        make: called once in each process as ``make(*arguments)``; returns the function to
            apply to a line.  Must be a top-level function or class.
        arguments: arguments of ``make``.
        path: text to read.
        workers: number of processes; with 1, no other process is started.
    """
    started, count = time.time(), 0
    reported = started
    chunks = _batches(read_lines(path), CHUNK)
    # Errors in the arguments are raised here, where they are one line.
    _start_worker(make, arguments)
    with contextlib.ExitStack() as stack:
        results: Iterator[List[Any]] = map(_apply, chunks)
        if workers > 1:
            pool = stack.enter_context(
                ProcessPoolExecutor(workers, initializer=_start_child, initargs=(make, arguments))
            )
            # This thread reads the text, at most a few chunks per worker ahead.
            rounds = _batches(chunks, 8 * workers)
            results = (result for group in rounds for result in pool.map(_apply, group))
        try:
            for result in results:
                count += len(result)
                if time.time() >= reported + REPORT:
                    reported = time.time()
                    print(f"{path}: {count} lines so far", file=sys.stderr, flush=True)
                yield from result
        except BrokenProcessPool:
            fail(
                f"{path}: a worker process was killed; if the memory is exhausted, give fewer than "
                f"--workers {workers}"
            )
    print(f"{path}: {count} lines in {time.time() - started:.0f} s", file=sys.stderr)


def map_lines(
    make: Callable[..., Callable[[str], str]],
    arguments: tuple,
    source: str,
    target: str,
    workers: int,
) -> None:
    """Write the mapped lines of one text to another; see :func:`parallel_map`."""
    with atomic_writer(target) as stream:
        for line in parallel_map(make, arguments, source, workers):
            stream.write(line + "\n")


def add_workers_flag(parser: Any) -> None:
    """Add ``--workers``, whose default is the environment's WORKERS or 1."""
    default = os.environ.get("WORKERS", "1")
    if not default.isdigit() or int(default) < 1:
        fail(f"WORKERS={default}: expected a whole number above 0")
    parser.add_argument(
        "--workers", type=int, default=int(default), help="processes (default: $WORKERS or 1)"
    )


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
        if start.startswith((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")):
            fail(f"{path}: begins with a byte-order mark; save it as UTF-8 without one")


if __name__ == "__main__":
    main()
