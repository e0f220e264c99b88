"""Checkpoints that are complete or absent, whenever the process is killed."""

import contextlib
import os
import shutil
from typing import Any, Callable

import torch
from fairseq import checkpoint_utils
from fairseq.file_io import PathManager

from fairseq_posenc.basics.files import replace_file
from fairseq_posenc.compat.patching import wrap


def atomic_checkpoints() -> None:
    """Write and copy checkpoints to a temporary file that replaces the old one at the end.

    Measured: fairseq copies ``checkpointN.pt`` over ``checkpoint_last.pt`` and
    ``checkpoint_best.pt`` in place, so a process that is killed meanwhile leaves half a file, from
    which the next start cannot resume.  Its ``torch.save`` goes to a temporary file that is never
    removed nor flushed to the disk before it is renamed.
    """
    wrap(PathManager, "copy", _copy_atomically)
    wrap(checkpoint_utils, "torch_persistent_save", _save_atomically)


def _copy_atomically(copy: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(src_path: str, dst_path: str, overwrite: bool = False) -> Any:
        if not overwrite or _is_remote(src_path) or _is_remote(dst_path):
            return copy(src_path, dst_path, overwrite)
        with replace_file(dst_path) as partial:
            shutil.copyfile(src_path, str(partial))
        return True

    return wrapper


def _save_atomically(torch_persistent_save: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(obj: Any, filename: Any, *args: Any, **kwargs: Any) -> Any:
        asynchronous = args[0] if args else kwargs.get("async_write", False)
        if asynchronous or not isinstance(filename, (str, os.PathLike)) or _is_remote(filename):
            return torch_persistent_save(obj, filename, *args, **kwargs)
        with contextlib.suppress(OSError):  # what fairseq itself left, killed while saving
            os.remove(f"{os.fspath(filename)}.tmp")
        with replace_file(filename) as partial, open(str(partial), "wb") as file:
            torch.save(obj, file)
        return None

    return wrapper


def _is_remote(path: Any) -> bool:
    path = os.fspath(path)
    return "://" in path or PathManager.path_requires_pathmanager(path)
