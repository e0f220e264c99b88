"""``fairseq-posenc reading``: questions that are answered by a span of a passage."""

import argparse

from fairseq_posenc.cli import reading_answer, reading_prepare, reading_score, reading_windows
from fairseq_posenc.cli.command import Command, add_commands

STEPS = (
    reading_prepare.COMMAND,
    reading_windows.COMMAND,
    reading_answer.COMMAND,
    reading_score.COMMAND,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the steps, each with its arguments."""
    add_commands(parser, STEPS, "STEP")


COMMAND = Command(
    "reading",
    "questions on passages (SQuAD, CMRC 2018): " + ", ".join(step.name for step in STEPS),
    "Prepare the data of --task span_prediction, answer questions with a model trained on them,\n"
    "and score answers as the scripts published with the data do.",
    add_arguments,
    run=None,
)
