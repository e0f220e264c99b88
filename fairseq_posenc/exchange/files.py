"""Files of a conversion: folders that are written completely or not at all."""

import contextlib
import os
import shutil
from typing import Iterator

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.files import remove_leftovers, replace_file, temporary_name

#: Ends of the names of weights.
_WEIGHTS = (".pt", ".safetensors")


@contextlib.contextmanager
def staging(out_dir: str) -> Iterator[str]:
    """A temporary folder whose files move to *out_dir* if the block succeeds.

    Args:
        out_dir: created if necessary; existing files of the same names are replaced atomically.

    Yields:
        an empty folder inside *out_dir*.

    Raises:
        UsageError: *out_dir* cannot be created or written to.
    """
    created = not os.path.isdir(out_dir)
    with _explained(out_dir):
        os.makedirs(out_dir, exist_ok=True)
        remove_leftovers(out_dir, ".convert")
        folder = os.path.join(out_dir, temporary_name(".convert"))
        shutil.rmtree(folder, ignore_errors=True)  # of an earlier process with this number
        os.mkdir(folder)
    try:
        yield folder
        # the weights last: where they are, everything is
        for name in sorted(os.listdir(folder), key=lambda name: (name.endswith(_WEIGHTS), name)):
            with replace_file(os.path.join(out_dir, name)) as partial:
                shutil.move(os.path.join(folder, name), str(partial))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if created:
            with contextlib.suppress(OSError):
                os.rmdir(out_dir)  # only if it is still empty


def write_text(path: str, text: str) -> None:
    """Write a text file in UTF-8.

    Raises:
        UsageError: it cannot be written.
    """
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: str, content: bytes) -> None:
    """Write a file.

    Raises:
        UsageError: it cannot be written.
    """
    with _explained(path), open(path, "wb") as file:
        file.write(content)


@contextlib.contextmanager
def _explained(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(
            f"{path}: cannot be written ({error.strerror or error}); give a folder that can be "
            "created or written to, on a disk with free space"
        ) from error
