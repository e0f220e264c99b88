"""How far long work has come, on standard error."""

import sys
from typing import Any, Iterable, Optional


def bar(
    name: str,
    items: Optional[Iterable[Any]] = None,
    total: Optional[int] = None,
    unit: str = " lines",
    **settings: Any,
) -> Any:
    """A bar of tqdm, to iterate over *items* or to update; only on a terminal."""
    from tqdm import tqdm  # here, since most commands draw none

    # without a thread of its own, which processes that map texts would be forked with
    alone: Any = type("Bar", (tqdm,), {"monitor_interval": 0})
    return alone(items, name, total, unit=unit, **{"miniters": 1, "disable": None, **settings})


def say_on_terminal(text: str) -> None:
    """Say what is being done where its progress cannot be counted."""
    if sys.stderr.isatty():
        print(text, file=sys.stderr, flush=True)
