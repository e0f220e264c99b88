"""Position encodings for fairseq: rotary and others, as a ``--user-dir`` plug-in.

Importing the package registers its architectures with fairseq.
"""

import sys

if __name__ != "fairseq_posenc":  # fairseq imports a --user-dir under the name of its folder
    raise SystemExit(
        f"fairseq_posenc: error: --user-dir: the folder is named {__name__}; it has to be named "
        "fairseq_posenc, by which its modules import each other"
    )

__version__ = "0.1.0"


def register() -> None:
    """Repair known quirks of the installed fairseq; register what the plug-in adds."""
    from fairseq_posenc import compat, criterions, models, optim  # noqa: F401

    compat.apply()


# `python -m fairseq_posenc doctor` has to run where fairseq does not import.  While Python looks
# for the module that -m names, and at no other time, sys.argv[0] is "-m".
if sys.argv[:1] != ["-m"]:
    register()
