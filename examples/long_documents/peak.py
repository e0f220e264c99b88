"""Run a command and record the peak memory of its largest process.

    fairseq-posenc script peak.py FILE COMMAND...

FILE gets the peak resident memory in MiB, or keeps that of an earlier part of the same training if
it was larger. The exit status is that of the command.
"""

import resource
import subprocess
import sys
from pathlib import Path
from typing import Optional, Sequence

from fairseq_posenc.basics.lines import write_text

#: ru_maxrss is in KiB on Linux and in bytes on macOS.
UNITS = {"darwin": 2**20}


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run the command line."""
    file, *command = sys.argv[1:] if argv is None else argv
    status = subprocess.call(command)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / UNITS.get(sys.platform, 2**10)
    before = float(Path(file).read_text()) if Path(file).is_file() else 0.0
    Path(file).parent.mkdir(parents=True, exist_ok=True)
    with write_text(file) as stream:
        stream.write(f"{max(peak, before):.0f}\n")
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main())
