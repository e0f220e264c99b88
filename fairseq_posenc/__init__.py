"""Position encodings for fairseq: rotary and others, as a ``--user-dir`` plug-in.

Importing the package registers its architectures, criterions and optimisers with fairseq, and
repairs quirks of the installed fairseq, PyTorch and NumPy (:mod:`fairseq_posenc.compat`), for stock
architectures, too.  With ``FAIRSEQ_POSENC_NO_REPAIRS=1`` in the environment it only registers.
"""

import os
import sys

if __name__ != "fairseq_posenc":  # fairseq imports a --user-dir under the name of its folder
    raise SystemExit(
        f"fairseq_posenc: error: --user-dir: the folder is named {__name__}; it has to be named "
        "fairseq_posenc, by which its modules import each other"
    )

__version__ = "0.2.0"

NO_REPAIRS = "FAIRSEQ_POSENC_NO_REPAIRS"


def register() -> None:
    """Register what the plug-in adds, and repair the installed fairseq unless told not to."""
    from fairseq_posenc import criterions, models, optim  # noqa: F401 - importing registers

    if os.environ.get(NO_REPAIRS, "0") in ("", "0"):
        from fairseq_posenc import compat
        from fairseq_posenc.loading.install import install

        compat.apply()
        install()


# The command line must start without importing fairseq, also where that fails.  While Python looks
# for the module that -m names, and at no other time, sys.argv[0] is "-m".
if sys.argv[:1] != ["-m"]:
    register()
