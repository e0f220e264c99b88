"""``fairseq-posenc doctor``."""

import argparse

from fairseq_posenc.cli.command import Command, no_arguments, quieten


def run(args: argparse.Namespace) -> int:
    """Print what was found; 1 if something cannot work, else 0."""
    from fairseq_posenc.cli.doctor_checks import examine, report

    quieten()
    return report(examine())


COMMAND = Command(
    "doctor",
    "check this installation and name the fix for what is wrong",
    "Check the versions of Python, PyTorch, NumPy, fairseq and optional packages, and print the "
    "command\nthat repairs what does not work together.",
    no_arguments,
    run,
)
