"""How far long work has come, on standard error."""

import sys
from typing import Any, Iterable, Iterator, Optional

DELAY = 1  # seconds until the reading of a text is shown
REPORT = 30  # seconds between two updates in a log


def bar(
    name: str,
    items: Optional[Iterable[Any]] = None,
    total: Optional[int] = None,
    unit: str = " lines",
    **settings: Any,
) -> Any:
    """A bar of tqdm, to iterate over or to update; only on a terminal.

    Args:
        name: what is being worked on.
        items: what to iterate over, if anything.
        total: how many there are, if that is known and not the length of *items*.
        unit: what is counted.
        settings: further arguments of tqdm.
    """
    from tqdm import tqdm  # here, since most commands draw none

    # without a thread of its own, which processes that map texts would be forked with
    alone: Any = type("Bar", (tqdm,), {"monitor_interval": 0})
    return alone(items, name, total, unit=unit, **{"miniters": 1, "disable": None, **settings})


def watched(
    lines: Iterable[bytes], name: str, total: Optional[int] = None, log: bool = True
) -> Iterator[bytes]:
    """The *lines* of a text, with a bar of what has been read; none of a text that is read at once.

    Args:
        name: the text.
        total: its size in bytes, or None if it is unknown.
        log: whether to report where standard error is no terminal, too.
    """
    terminal = sys.stderr.isatty()
    pause = 0.1 if terminal else REPORT
    hidden = not (terminal or log)
    settings: Any = {"unit_scale": True, "delay": DELAY, "mininterval": pause, "disable": hidden}
    with bar(name, total=total, unit="B", **settings) as drawn:
        for line in lines:
            drawn.update(len(line))
            yield line


def say_on_terminal(text: str) -> None:
    """Say what is being done, of work whose parts cannot be counted."""
    if sys.stderr.isatty():
        print(text, file=sys.stderr, flush=True)
