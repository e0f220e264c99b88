"""Folders that are made beside the old ones and put in their places whole."""

import contextlib
import filecmp
import os
import shutil

from fairseq_posenc.basics.errors import UsageError

PART = ".part"  # the folder in which folders are made that replace others


def part_of(folder: str) -> str:
    """The folder that commands write in the place of *folder*, with the same name.

    >>> part_of("out/data-bin/")
    'out/.part/data-bin'
    """
    parent, name = os.path.split(folder.rstrip("/"))
    return os.path.join(parent, PART, name)


def replace(folder: str, name: str) -> None:
    """Put what was made in :func:`part_of` a folder in its place; an equal folder stays.

    A folder that stays keeps its times, and so is no newer than what was made from it.

    Raises:
        UsageError: nothing was made.
    """
    part, old = part_of(folder), os.path.join(part_of(folder), ".replaced")
    if not os.path.isdir(part):
        raise UsageError(f"{name}: ended without making {part}")
    if os.path.isdir(folder) and _equal(filecmp.dircmp(part, folder, hide=[])):
        shutil.rmtree(part)
    elif os.path.lexists(folder):  # half a folder would not be known as a recipe's own
        os.rename(folder, old)
        os.rename(part, folder)
        shutil.rmtree(os.path.join(folder, ".replaced"))
    else:
        os.makedirs(os.path.dirname(folder) or ".", exist_ok=True)
        os.rename(part, folder)
    with contextlib.suppress(OSError):  # others are at work there
        os.rmdir(os.path.dirname(part))


def _equal(both: "filecmp.dircmp[str]") -> bool:
    """Whether two folders hold the same, but for logs and a lock."""
    alone = [n for n in both.left_only + both.right_only if not n.endswith((".log", ".lock"))]
    files = [name for name in both.common_files if not name.endswith(".log")]
    _, differ, errors = filecmp.cmpfiles(both.left, both.right, files, shallow=False)
    return not (alone or differ or errors or both.common_funny) and all(
        map(_equal, both.subdirs.values())
    )
