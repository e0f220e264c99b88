"""``fairseq-posenc path``."""

import argparse
from pathlib import Path

from fairseq_posenc.cli.command import Command, no_arguments


def run(args: argparse.Namespace) -> None:
    """Print the folder of the package."""
    print(Path(__file__).resolve().parents[1])


COMMAND = Command(
    "path",
    "print the folder to pass to fairseq's --user-dir",
    'Print the folder to pass to fairseq\'s commands: --user-dir "$(fairseq-posenc path)"',
    no_arguments,
    run,
)
