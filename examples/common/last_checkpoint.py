"""Replace a damaged checkpoint_last.pt by the newest whole checkpoint beside it.

    python last_checkpoint.py SAVE_DIR

The damaged file is kept as checkpoint_last.damaged.pt. Does nothing where checkpoint_last.pt can be
read, and where no other checkpoint can: fairseq-train then says what is wrong.
"""

import argparse
import os
import shutil
import sys
from typing import Optional, Sequence

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.files import replace_file
from fairseq_posenc.checkpoints.archive import numbered
from fairseq_posenc.checkpoints.reading import read_checkpoint

LAST = "checkpoint_last.pt"


def is_whole(path: str) -> bool:
    """Tell whether a checkpoint can be read."""
    try:
        read_checkpoint(path)
    except UsageError:
        return False
    return True


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
