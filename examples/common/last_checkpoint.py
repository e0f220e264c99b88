"""Replace a damaged checkpoint_last.pt by the newest whole checkpoint beside it.

    python last_checkpoint.py SAVE_DIR

The damaged file is kept as checkpoint_last.damaged.pt. Does nothing where checkpoint_last.pt can be
read, and where no other checkpoint can: fairseq-train then says what is wrong.
"""

import argparse
import os
import re
import shutil
import sys
from typing import Iterator, Optional, Sequence

from fairseq_posenc.checkpoints.reading import read_checkpoint
from fairseq_posenc.errors import UsageError
from fairseq_posenc.files import replace_file

LAST = "checkpoint_last.pt"
NUMBERED = re.compile(r"checkpoint(?:_(\d+)_(\d+)|(\d+))\.pt")


def is_whole(path: str) -> bool:
    """Tell whether a checkpoint can be read."""
    try:
        read_checkpoint(path)
    except UsageError:
        return False
    return True


def numbered(folder: str) -> Iterator[str]:
    """Yield the names of the checkpoints of an epoch or an update in *folder*, newest first."""
    found = []
    for match in filter(None, map(NUMBERED.fullmatch, os.listdir(folder))):
        within, updates, whole = match.groups()
        # checkpoint_2_700.pt is of the second epoch, at whose end checkpoint2.pt is written
        place = (int(whole), float("inf")) if whole else (int(within), float(updates))
        found.append((place, match.group(0)))
    return (name for _, name in sorted(found, reverse=True))


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("save_dir", help="the --save-dir of a training")
    folder = parser.parse_args(argv).save_dir
    last = os.path.join(folder, LAST)
    if not os.path.isfile(last) or is_whole(last):
        return
    for name in numbered(folder):
        source = os.path.join(folder, name)
        if is_whole(source):
            break
    else:
        return
    shutil.copyfile(last, os.path.join(folder, "checkpoint_last.damaged.pt"))
    with replace_file(last) as partial:
        shutil.copyfile(source, partial)
    print(
        f"{last}: is damaged, kept as checkpoint_last.damaged.pt; going on from {name}",
        file=sys.stderr,
    )


if __name__ == "__main__":
    main()
