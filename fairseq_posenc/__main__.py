"""``python -m fairseq_posenc``: the same as ``fairseq-posenc``."""

import sys

from fairseq_posenc.cli import main

if __name__ == "__main__":
    sys.exit(main())
