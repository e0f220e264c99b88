"""Files that fairseq writes: complete checkpoints, and logs without repeated lines."""

import contextlib
import os
import shutil
from typing import Any, Callable

import torch
from fairseq.file_io import PathManager
from fairseq.logging import progress_bar as progress_bars

from fairseq_posenc.basics.files import replace_file


def copy_atomically(copy: Callable[..., Any]) -> Callable[..., Any]:
    """Copy checkpoints to a temporary file that replaces the old one at the end.

    Measured: fairseq copies ``checkpointN.pt`` over ``checkpoint_last.pt`` and
    ``checkpoint_best.pt`` in place, so a process that is killed during the copy leaves half a file,
    from which the next start cannot resume.
    """

    def wrapper(src_path: str, dst_path: str, overwrite: bool = False) -> Any:
        if not overwrite or _is_remote(src_path) or _is_remote(dst_path):
            return copy(src_path, dst_path, overwrite)
        with replace_file(dst_path) as partial:
            shutil.copyfile(src_path, str(partial))
        return True

    return wrapper


def save_atomically(torch_persistent_save: Callable[..., Any]) -> Callable[..., Any]:
    """Write checkpoints to a temporary file that replaces the old one at the end.

    fairseq's temporary file is not flushed to disk before it is renamed, and it is left behind if
    the process is killed.
    """

    def wrapper(obj: Any, filename: Any, *args: Any, **kwargs: Any) -> Any:
        asynchronous = args[0] if args else kwargs.get("async_write", False)
        if asynchronous or not isinstance(filename, (str, os.PathLike)) or _is_remote(filename):
            return torch_persistent_save(obj, filename, *args, **kwargs)
        with contextlib.suppress(OSError):  # fairseq leaves this file if it is killed
            os.remove(f"{os.fspath(filename)}.tmp")
        with replace_file(filename) as partial, open(str(partial), "wb") as file:
            torch.save(obj, file)
        return None

    return wrapper


def _is_remote(path: Any) -> bool:
    path = os.fspath(path)
    return "://" in path or PathManager.path_requires_pathmanager(path)


def log_lines_once(progress_bar: Callable[..., Any]) -> Callable[..., Any]:
    """Keep one handler for ``--log-file``.

    fairseq adds a handler in every epoch and removes none, so it writes each line of the N-th epoch
    N times, and long runs can fill the disk.
    """

    def wrapper(*args: object, **kwargs: object) -> Any:
        # validation passes no file and logs to the handler of training, which must stay
        log_file = kwargs.get("log_file", args[3] if len(args) > 3 else None)
        for handler in list(progress_bars.logger.handlers) if log_file else ():
            if hasattr(handler, "baseFilename"):
                progress_bars.logger.removeHandler(handler)
                handler.close()
        return progress_bar(*args, **kwargs)

    return wrapper
