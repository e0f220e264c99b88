"""``fairseq-posenc doctor``."""

import argparse

from fairseq_posenc.cli.command import Command, no_arguments, quieten


def run(args: argparse.Namespace) -> int:
    """Print the findings; returns 1 if one of them is an error, else 0."""
    from fairseq_posenc.cli.doctor_checks import examine, report

    quieten()
    return report(examine())


COMMAND = Command(
    "doctor",
    "check this installation and suggest fixes",
    "Check the versions of Python, PyTorch, NumPy, fairseq and optional packages, and print the "
    "command\nthat fixes each problem.",
    no_arguments,
    run,
)
