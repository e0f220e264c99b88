"""Damaged checkpoint files, recognised by their checksums, and whole ones beside them."""

import math
import os
import re
import shlex
import zipfile
from typing import Hashable, Iterator, Optional

from fairseq_posenc.basics.files import digest_of_file

_NUMBERED = re.compile(r"checkpoint(?:_(\d+)_(\d+)|(\d+))\.pt")
_LAST = "checkpoint_last.pt"


def damaged_member(path: str) -> Optional[str]:
    """The first member of a zip archive whose bytes differ from its checksum, or None.

    This reads the whole file, as loading it does.

    Args:
        path: a zip archive, as PyTorch writes since 1.6; older files have no checksums.

    Raises:
        zipfile.BadZipFile: the file is truncated.
    """
    with zipfile.ZipFile(path) as archive:
        if not any(member.CRC for member in archive.infolist()):
            return None  # torch.serialization.set_crc32_options(False)
        damaged = archive.testzip()
    return None if damaged is None else damaged.partition("/")[2] or damaged


def remedy(path: str) -> str:
    """Advice for a damaged checkpoint, naming the newest whole one beside it."""
    whole = _newest_whole(path)
    if whole is None:
        return "use an earlier checkpoint or copy it again"
    if os.path.basename(path) == _LAST:
        command = f"cp {shlex.quote(whole)} {shlex.quote(path)}"
        return f"the newest whole checkpoint beside it is {whole}; to go on from it: {command}"
    return f"use an earlier checkpoint, such as {whole}, which is whole, or copy it again"


def numbered(folder: str) -> Iterator[str]:
    """The names of the checkpoints of an epoch or an update in *folder*, newest first."""
    found = []
    for match in filter(None, map(_NUMBERED.fullmatch, os.listdir(folder))):
        within, updates, whole = match.groups()
        # checkpoint_2_700.pt is written within the second epoch, checkpoint2.pt at its end
        place = (int(whole), math.inf) if whole else (int(within), float(updates))
        found.append((place, match.group(0)))
    return (name for _, name in sorted(found, reverse=True))


def _newest_whole(path: str) -> Optional[str]:
    """The newest numbered checkpoint in the folder of *path* that is whole, or None."""
    folder, own = os.path.split(path)
    try:
        others = [os.path.join(folder, name) for name in numbered(folder or ".") if name != own]
    except OSError:
        return None
    return next(filter(_is_whole, others), None)


def _is_whole(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            has_checksums = file.read(1) != b"\x80"  # the first byte that PyTorch before 1.6 wrote
        return not has_checksums or damaged_member(path) is None
    except (OSError, zipfile.BadZipFile):
        return False


def fingerprint(path: str) -> Hashable:
    """A value that differs for files of different content; cheap for files with checksums."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            members = [(m.filename.partition("/")[2], m.CRC, m.file_size) for m in archive.filelist]
        if any(checksum for _, checksum, _ in members):
            return tuple(members)
    return digest_of_file(path)
