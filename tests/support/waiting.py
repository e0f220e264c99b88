"""Waiting for other processes."""

import time
from pathlib import Path
from typing import Any, Callable


def until(true: Callable[[], Any], what: str = "it", seconds: float = 20, pause: float = 0.02):
    """Wait until ``true()`` holds; *what* names the event in the error message."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, f"waited {seconds} s for {what}"
        time.sleep(pause)


def is_running(pid: Any) -> bool:
    """Whether process number *pid* exists and has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except OSError:
        return False
