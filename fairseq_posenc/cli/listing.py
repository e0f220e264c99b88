"""``fairseq-posenc list``."""

import argparse

from fairseq_posenc.cli.command import Command, load_plug_in, no_arguments


def run(args: argparse.Namespace) -> None:
    """Print the catalogue."""
    load_plug_in()
    from fairseq_posenc.cli.catalogue import catalogue

    print(catalogue())


COMMAND = Command(
    "list",
    "print architectures, encodings and their papers",
    "Print all values that the plug-in's flags accept: position encodings, attentions, norms,\n"
    "feed-forwards, formats of import and export, and the architectures with their sizes.",
    no_arguments,
    run,
)
