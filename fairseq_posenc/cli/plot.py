"""``fairseq-posenc plot``: one command per kind of figure."""

import argparse

from fairseq_posenc.cli import plot_extrapolation, plot_positions, plot_training
from fairseq_posenc.cli.command import Command, add_commands

FIGURES = (plot_positions.COMMAND, plot_training.COMMAND, plot_extrapolation.COMMAND)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the kinds of figures, each with its arguments."""
    add_commands(parser, FIGURES, "FIGURE")


COMMAND = Command(
    "plot",
    "draw figures: " + ", ".join(figure.name for figure in FIGURES),
    "Plot what a model learned about positions, loss curves, or perplexity by context length.",
    add_arguments,
    run=None,
)
