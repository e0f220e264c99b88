"""Mapping the lines of texts, in order, in one process or several."""

import contextlib
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Callable, Iterator, List, Sequence

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.lines import decoded, in_blocks, read_lines, write_text
from fairseq_posenc.basics.progress import watched
from fairseq_posenc.basics.standard import standard_input, standard_output

#: Maps lines to as many results.
Function = Callable[[List[str]], List[Any]]
CHUNK = 2000  # lines sent to a worker process at a time
STANDARD = "-"  # standard input, or standard output
_function = None  # a worker process applies it to lines


def each(function: Callable[[str], Any]) -> Function:
    """The function that applies *function* to each of several lines."""
    return lambda lines: [function(line) for line in lines]


def _start_worker(make: Callable[..., Function], arguments: tuple) -> None:
    global _function
    _function = make(*arguments)


def _start_child(make: Callable[..., Function], arguments: tuple) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent says that it is interrupted
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
    return _function(lines)


def parallel_map(
    make: Callable[..., Function], arguments: tuple, path: str, workers: int
) -> Iterator[Any]:
    """Apply a function to every line of a text, in order, in several processes.

    Args:
        make: called once in each process as ``make(*arguments)``; returns the function to apply
            to lines.  It must be a function or class of a module, not one within a function.
        arguments: arguments of *make*.
        path: text to read, or ``-`` for standard input.
        workers: number of processes; with 1, no other process is started.

    Raises:
        UsageError: the text cannot be read, or a process was killed.
    """
    if path == STANDARD:
        lines = decoded(watched(standard_input(), "standard input", log=False), "standard input")
    else:
        lines = read_lines(path, shown=True)
    chunks = in_blocks(lines, CHUNK)
    # an error in the arguments is raised here, where it is one line
    _start_worker(make, arguments)
    with contextlib.ExitStack() as stack:
        results: Iterator[List[Any]] = map(_apply, chunks)
        if workers > 1:
            pool = stack.enter_context(
                ProcessPoolExecutor(workers, initializer=_start_child, initargs=(make, arguments))
            )
            # this thread reads the text, at most a few chunks per worker ahead
            rounds = in_blocks(chunks, 8 * workers)
            results = (result for group in rounds for result in pool.map(_apply, group))
        try:
            for result in results:
                yield from result
        except BrokenProcessPool as error:
            raise UsageError(
                f"{path}: a worker process was killed; if the memory is exhausted, give fewer than "
                f"--workers {workers}"
            ) from error


def map_texts(
    make: Callable[..., Function], arguments: tuple, texts: Sequence[str], workers: int
) -> None:
    """Write the mapped lines of texts; see :func:`parallel_map`.

    Args:
        make: makes the function that maps lines to lines.
        arguments: arguments of *make*.
        texts: INPUT OUTPUT [INPUT OUTPUT ...]; ``-`` is standard input or output.
        workers: number of processes.

    Raises:
        UsageError: an input has no output, or a text cannot be read or written.
    """
    if len(texts) % 2:
        raise UsageError(f"{texts[-1]}: has no output; give INPUT OUTPUT [INPUT OUTPUT ...]")
    for source, target in zip(texts[::2], texts[1::2]):
        with contextlib.ExitStack() as stack:
            if target == STANDARD:
                out: Any = stack.enter_context(standard_output())
            else:
                out = stack.enter_context(write_text(target))
            for line in parallel_map(make, arguments, source, workers):
                out.write(line + "\n")
