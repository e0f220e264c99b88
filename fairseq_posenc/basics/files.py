"""Writing files so that each is complete or absent, and digests of files."""

import contextlib
import errno
import hashlib
import os
import re
import shutil
import socket
import stat
from pathlib import Path
from typing import Iterator, List, Union

from fairseq_posenc.basics.errors import UsageError

FilePath = Union[str, "os.PathLike[str]"]
#: Advice for messages about a folder that cannot be written.
GIVE_A_FOLDER = "give a folder that can be created or written to, on a disk with free space"
#: Error numbers of a full disk or an exhausted quota.
_FULL = (errno.ENOSPC, errno.EDQUOT)
#: Suffixes of weight files.
_WEIGHTS = (".pt", ".safetensors")


@contextlib.contextmanager
def replace_file(path: FilePath, flag: str = "") -> Iterator[Path]:
    """Yield a temporary file that atomically replaces *path* on exit, unless writing fails.

    If *path* is a symbolic link, the link stays, and the file that it points to is replaced.
    Temporary files left by killed processes that wrote the same *path* are removed.

    Raises:
        UsageError: *path* is a folder, a device or a pipe, or cannot be written.
    """
    shown = f"{flag} {os.fspath(path)}".strip()
    target = Path(os.path.realpath(os.fspath(path)))
    _check_replaceable(target, shown)
    partial = target.with_name(temporary_name(f".{target.name}"))
    remove_leftovers(target.parent, f".{target.name}")
    try:
        with writing(partial, shown, "give a file in an existing folder with free space"):
            yield partial
            with open(partial, "rb") as file:
                os.fsync(file.fileno())
            os.replace(partial, target)
    finally:
        with contextlib.suppress(OSError):
            partial.unlink()


@contextlib.contextmanager
def new_folder(path: FilePath) -> Iterator[str]:
    """Yield a temporary folder that becomes *path* on exit, unless writing fails.

    Missing parents of *path* are created.  Temporary folders left by killed processes that wrote
    the same *path* are removed.

    Raises:
        UsageError: *path* exists and is not an empty folder, or cannot be written.
    """
    target = Path(os.path.realpath(os.fspath(path)))
    refuse_existing(path)
    partial = target.with_name(temporary_name(f".{target.name}"))
    try:
        with writing(partial, os.fspath(path), GIVE_A_FOLDER):
            target.parent.mkdir(parents=True, exist_ok=True)
            remove_leftovers(target.parent, f".{target.name}")
            partial.mkdir()
            yield str(partial)
            os.replace(partial, target)
    finally:
        shutil.rmtree(str(partial), ignore_errors=True)


@contextlib.contextmanager
def staging(out: str) -> Iterator[str]:
    """Yield a temporary folder inside *out*; its files move to *out* on exit, weights last.

    *out* is created if necessary; files in *out* with the same names are replaced atomically.

    Raises:
        UsageError: *out* cannot be created or written to.
    """
    created = not os.path.isdir(out)
    folder = os.path.join(out, temporary_name(".convert"))
    try:
        with writing(Path(folder), out, GIVE_A_FOLDER):
            os.makedirs(out, exist_ok=True)
            remove_leftovers(out, ".convert")
            shutil.rmtree(folder, ignore_errors=True)  # left by a process with the same ID
            os.mkdir(folder)
            yield folder
            # weights move last: a folder that has them is complete
            for name in sorted(files_in(folder), key=lambda name: (name.endswith(_WEIGHTS), name)):
                os.makedirs(os.path.dirname(os.path.join(out, name)), exist_ok=True)
                with replace_file(os.path.join(out, name)) as partial:
                    shutil.move(os.path.join(folder, name), str(partial))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if created:
            with contextlib.suppress(OSError):
                os.rmdir(out)  # fails if it is not empty


def files_in(folder: FilePath) -> List[str]:
    """All files below *folder*, as sorted paths relative to it."""
    found = [path.relative_to(folder) for path in Path(folder).rglob("*") if path.is_file()]
    return sorted(map(str, found))


@contextlib.contextmanager
def writing(partial: Path, shown: str, advice: str) -> Iterator[None]:
    """If writing the temporary file or folder *partial* fails, raise an error about *shown*."""
    try:
        yield
    except UsageError as error:
        if str(partial) in error.message:  # about *partial* or a file in it
            raise UsageError(error.message.replace(str(partial), shown)) from error
        raise
    except Exception as error:
        # on a full disk, torch.save raises a RuntimeError while it handles the OSError
        cause = error.__context__ if isinstance(error, RuntimeError) else error
        reason = next((text for text in map(os.strerror, _FULL) if text in str(error)), "")
        if isinstance(cause, OSError):
            _refuse_other(cause, partial)
            reason = cause.strerror or str(cause)
        if not reason:
            raise
        raise UsageError(f"{shown}: cannot be written ({reason}); {advice}") from error


def _refuse_other(error: OSError, partial: Path) -> None:
    """Refuse the file that *error* names, unless it is, contains or is inside *partial*."""
    copied = error.errno in _FULL and error.filename2 is not None
    name = error.filename2 if copied else error.filename  # in a copy, filename is the source
    if isinstance(name, str):
        file, partial = Path(os.path.abspath(name)), Path(os.path.abspath(partial))
        if file != partial and partial not in file.parents and file not in partial.parents:
            raise UsageError(f"{name}: {error.strerror}") from error


def refuse_existing(path: FilePath) -> None:
    """Refuse a *path* that exists and is not an empty folder."""
    if os.path.lexists(path) and not (os.path.isdir(path) and not os.listdir(path)):
        raise UsageError(f"{os.fspath(path)}: exists already; remove it, or give a new folder")


def digest_of_file(path: FilePath) -> str:
    """The SHA-256 of a file's content, hexadecimal."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def temporary_name(prefix: str) -> str:
    """A name for a temporary file or folder; it contains the host name and the process ID."""
    return f"{prefix}.{socket.gethostname()}.{os.getpid()}.partial"


def remove_leftovers(folder: FilePath, prefix: str) -> None:
    """Remove temporary files and folders of this machine's processes that no longer run."""
    pattern = re.escape(f"{prefix}.{socket.gethostname()}.") + r"(\d+)\.partial"
    with contextlib.suppress(OSError):  # the folder does not exist
        for name in os.listdir(os.fspath(folder)):
            match = re.fullmatch(pattern, name)
            if match and not _is_running(int(match.group(1))):
                path = os.path.join(folder, name)
                shutil.rmtree(path, ignore_errors=True)  # leaves a file in place
                with contextlib.suppress(OSError):  # another process may have removed it
                    os.remove(path)


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # another user's process
        return True
    return True


def refuse_own_source(out: FilePath, *sources: FilePath, flag: str = "") -> None:
    """Refuse to overwrite a file or folder in *sources*, from which the result *out* is made."""
    if os.path.realpath(out) in map(os.path.realpath, sources):
        shown = f"{flag} {os.fspath(out)}".strip()
        raise UsageError(f"{shown}: the result would overwrite its own source; give another name")


def check_writable(path: FilePath, flag: str = "") -> None:
    """Check, before a long computation, that its result can be written to *path*."""
    shown = f"{flag} {os.fspath(path)}".strip()
    target = Path(os.path.realpath(os.fspath(path)))
    _check_replaceable(target, shown)
    if not target.parent.is_dir():
        raise UsageError(f"{shown}: there is no folder {target.parent}; create it first")


def _check_replaceable(target: Path, shown: str) -> None:
    try:
        mode = target.stat().st_mode
    except OSError:  # the file or its folder does not exist
        return
    if stat.S_ISDIR(mode):
        raise UsageError(f"{shown}: is a directory; give the name of a file to write")
    if not stat.S_ISREG(mode):
        kind = "a pipe" if stat.S_ISFIFO(mode) else "a device or socket"
        raise UsageError(f"{shown}: is {kind}, not a file; give the name of a file to write")
