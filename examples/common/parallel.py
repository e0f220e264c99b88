"""Mapping the lines of texts in several processes, in order.

Recipes give the number of processes as ``--workers`` or in the environment's WORKERS.
"""

import argparse
import contextlib
import itertools
import multiprocessing
import multiprocessing.connection
import os
import threading
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Callable, Iterable, Iterator, List, Tuple

from text import Progress, atomic_writer, fail, read_lines

CHUNK = 2000  # lines sent to a worker process at a time
_function = None  # the function that a worker process applies to each line


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
    progress, count = Progress(path), 0
    chunks = _batches(read_lines(path, progress), CHUNK)
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
                progress.at(count)
                yield from result
        except BrokenProcessPool:
            fail(
                f"{path}: a worker process was killed; if the memory is exhausted, give fewer than "
                f"--workers {workers}"
            )
    progress.end(count)


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


def add_texts(parser: Any) -> None:
    """Add the arguments ``INPUT OUTPUT [INPUT OUTPUT ...]``."""
    parser.add_argument("texts", nargs="+", metavar="INPUT OUTPUT")


def map_texts(
    make: Callable[..., Callable[[str], str]], arguments: tuple, args: argparse.Namespace
) -> None:
    """Map the lines of the texts of :func:`add_texts`, each to its output."""
    if len(args.texts) % 2:
        fail(f"{args.texts[-1]}: has no output; give INPUT OUTPUT [INPUT OUTPUT ...]")
    for source, target in zip(args.texts[::2], args.texts[1::2]):
        map_lines(make, arguments, source, target, args.workers)


def learn_or_apply(doc: str, file: str, units: str) -> Tuple[Any, Any]:
    """The parser of ``learn FILE INPUT ...`` and ``apply FILE INPUT OUTPUT ...``, and of ``learn``.

    The caller adds the flags of ``learn``.

    Args:
        doc: the description.
        file: name of the argument for what is learned.
        units: name of what ``apply`` splits texts into.
    """
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    actions = parser.add_subparsers(dest="action", metavar="{learn,apply}")
    actions.required = True
    learning = actions.add_parser("learn", help=f"learn {units}")
    learning.add_argument(file)
    learning.add_argument("inputs", nargs="+")
    applying = actions.add_parser("apply", help=f"split texts into {units}")
    applying.add_argument(file)
    add_texts(applying)
    add_workers_flag(applying)
    return parser, learning


def add_workers_flag(parser: Any) -> None:
    """Add ``--workers``, whose default is the environment's WORKERS or 1."""
    default = os.environ.get("WORKERS", "1")
    if not default.isdecimal() or int(default) < 1:
        fail(f"WORKERS={default}: expected a whole number above 0")
    parser.add_argument(
        "--workers", type=int, default=int(default), help="processes (default: $WORKERS or 1)"
    )
