"""Replacing a damaged last checkpoint by the newest whole one beside it."""

import os
import shutil
import sys

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.files import replace_file
from fairseq_posenc.checkpoints.archive import numbered
from fairseq_posenc.checkpoints.reading import read_checkpoint

_LAST = "checkpoint_last.pt"
_KEPT = "checkpoint_last.damaged.pt"


def recover_last(folder: str) -> None:
    """Put the newest whole checkpoint in the place of a damaged ``checkpoint_last.pt``.

    The damaged file is kept as ``checkpoint_last.damaged.pt``.  Nothing is done where the last
    checkpoint can be read, and where no other one can: ``fairseq-train`` then says what is wrong.

    Args:
        folder: the ``--save-dir`` of a training.
    """
    last = os.path.join(folder, _LAST)
    if not os.path.isfile(last) or _is_whole(last):
        return
    for name in numbered(folder):
        source = os.path.join(folder, name)
        if _is_whole(source):
            break
    else:
        return
    shutil.copyfile(last, os.path.join(folder, _KEPT))
    with replace_file(last) as partial:
        shutil.copyfile(source, partial)
    print(f"{last}: is damaged, kept as {_KEPT}; going on from {name}", file=sys.stderr)


def _is_whole(path: str) -> bool:
    try:
        read_checkpoint(path)
    except UsageError:
        return False
    return True
