"""``--log-file``: every line once."""

from typing import Any, Callable

from fairseq.logging import progress_bar as progress_bars

from fairseq_posenc.compat.patching import wrap


def log_lines_once() -> None:
    """Keep one handler for ``--log-file``.

    fairseq adds another for every epoch and every validation and removes none, so the line of the
    N-th epoch is written about 2 N times, and a training of a thousand epochs fills the disk.
    """
    wrap(progress_bars, "progress_bar", _without_earlier_handlers)


def _without_earlier_handlers(progress_bar: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        for handler in list(progress_bars.logger.handlers):
            if hasattr(handler, "baseFilename"):
                progress_bars.logger.removeHandler(handler)
                handler.close()
        return progress_bar(*args, **kwargs)

    return wrapper
