"""``--log-file`` without repeated lines."""

from typing import Any, Callable

from fairseq.logging import progress_bar as progress_bars

from fairseq_posenc.compat.patching import wrap


def log_lines_once() -> None:
    """Keep one handler for ``--log-file``.

    fairseq adds a handler in every epoch and removes none, so lines of the N-th epoch are written
    N times, and long runs can fill the disk.
    """
    wrap(progress_bars, "progress_bar", _without_earlier_handlers)


def _without_earlier_handlers(progress_bar: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(*args: object, **kwargs: object) -> Any:
        # validation passes no file and logs to the handler of training, which must stay
        log_file = kwargs.get("log_file", args[3] if len(args) > 3 else None)
        for handler in list(progress_bars.logger.handlers) if log_file else ():
            if hasattr(handler, "baseFilename"):
                progress_bars.logger.removeHandler(handler)
                handler.close()
        return progress_bar(*args, **kwargs)

    return wrapper
