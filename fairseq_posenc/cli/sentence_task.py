"""``fairseq-posenc sentence-task``: what the recipes ask of tasks on one or two sentences."""

import argparse
from typing import Callable

from fairseq_posenc.cli.command import Command, add_commands

DESCRIPTION = """\
Read, check and describe tasks on one or two sentences for fairseq's sentence_prediction.

TABLE is a YAML file with the settings of one or more tasks by name, as examples/glue/README.md
says; the scripts in examples/glue call these steps."""


def _declare(*names: str) -> Callable[[argparse.ArgumentParser], None]:
    """The function that declares these arguments, all of them required."""

    def declare(parser: argparse.ArgumentParser) -> None:
        for name in names:
            parser.add_argument(name, metavar=name.upper())

    return declare


def run_names(args: argparse.Namespace) -> None:
    """Print the names of the tasks."""
    from fairseq_posenc.training.sentence_tasks.tasks import read_table

    print(" ".join(read_table(args.table)))


def add_plan(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``sentence-task plan``."""
    _declare("table", "task", "folder")(parser)
    parser.add_argument("--dry-run", action="store_true", help="the files may be missing")


def run_plan(args: argparse.Namespace) -> None:
    """Print variables for preparing a task."""
    from fairseq_posenc.training.sentence_tasks.recipes import assignments, plan
    from fairseq_posenc.training.sentence_tasks.tasks import task_in

    print(assignments(plan(task_in(args.table, args.task), args.folder, args.dry_run)))


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``sentence-task settings``."""
    _declare("table", "task")(parser)
    parser.add_argument("--paper", default="tupe", help="whose settings (tupe)")


def run_settings(args: argparse.Namespace) -> None:
    """Print variables for fine-tuning on a task."""
    from fairseq_posenc.training.sentence_tasks.recipes import assignments, settings
    from fairseq_posenc.training.sentence_tasks.tasks import task_in

    print(assignments(settings(task_in(args.table, args.task), args.paper)))


def run_extract(args: argparse.Namespace) -> None:
    """Write texts and labels."""
    from fairseq_posenc.training.sentence_tasks.files import extract
    from fairseq_posenc.training.sentence_tasks.tasks import task_in

    extract(task_in(args.table, args.task), args.folder, args.out)


def run_describe(args: argparse.Namespace) -> None:
    """Write the description of a prepared task."""
    from fairseq_posenc.training.sentence_tasks.recipes import describe
    from fairseq_posenc.training.sentence_tasks.tasks import task_in

    describe(task_in(args.table, args.task), args.found, args.file)


def run_submit(args: argparse.Namespace) -> None:
    """Write a submission."""
    from fairseq_posenc.training.sentence_tasks.recipes import submit

    submit(args.described, args.name, args.test, args.predictions, args.folder)


STEPS = (
    Command("names", "print the tasks of a file", "Print the names.", _declare("table"), run_names),
    Command(
        "plan",
        "print what is to be prepared",
        "Print inputs, kind of labels and the file of each split, as variables of a shell script.",
        add_plan,
        run_plan,
    ),
    Command(
        "settings",
        "print the settings of fine-tuning",
        "Print flags for the labels, scores, epochs, batches and learning rates, as variables.",
        add_settings,
        run_settings,
    ),
    Command(
        "extract",
        "from published files to lines",
        "Read the files in FOLDER. OUT gets input0/SPLIT, input1/SPLIT (of pairs) and\n"
        "label/SPLIT, one example a line, label/dict.txt, examples (the number of training\n"
        "examples), test/NAME.tsv with number and sentences of each test set, and found.yaml.",
        _declare("table", "task", "folder", "out"),
        run_extract,
    ),
    Command(
        "describe",
        "write task.yaml of prepared data",
        "Write the settings of a task with what `extract` found in its files to FILE.",
        _declare("table", "task", "found", "file"),
        run_describe,
    ),
    Command(
        "submit",
        "write what a benchmark's site takes",
        "Write FOLDER/NAME.tsv with index and prediction, as GLUE asks for, if the test set was\n"
        "TSV; if it was JSON, FOLDER/NAME.json (or .jsonl) with an object for each example, as\n"
        "CLUE and SuperGLUE do. DESCRIBED is task.yaml and TEST test/NAME.tsv of prepared data.\n"
        "A number is kept within the range of the labels.",
        _declare("described", "name", "test", "predictions", "folder"),
        run_submit,
    ),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the steps, each with its arguments."""
    add_commands(parser, STEPS, "STEP")


COMMANDS = (
    Command(
        "sentence-task",
        "tasks on sentences (GLUE, CLUE, your own): " + ", ".join(step.name for step in STEPS),
        DESCRIPTION,
        add_arguments,
        run=None,
    ),
)
