"""``fairseq-posenc generate-task``."""

import argparse
from typing import Optional, Tuple

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.cli.command import (
    argument,
    command,
    load_plug_in,
    number,
    place,
    quieten,
    user_dir,
)
from fairseq_posenc.generated.registry import FAMILIES, GENERATED_TASKS
from fairseq_posenc.generated.settings import Settings

_USUAL = Settings("")


@command(
    "generate-task",
    "write the data of a generated task, to see at which length a model breaks",
    place("NAME", "the task; fairseq-posenc list names all"),
    place("DEST", "the folder to write"),
    argument(
        "--family",
        choices=FAMILIES,
        default=_USUAL.family,
        help=f"family of models ({_USUAL.family})",
    ),
    argument(
        "--lengths",
        metavar="LIST",
        help="lengths of training and validation (those from "
        f"{_USUAL.lengths[0]} to {_USUAL.lengths[-1]} that the task has)",
    ),
    argument(
        "--test-lengths",
        metavar="LIST",
        help="lengths with a test set each (those of "
        f"{','.join(map(str, _USUAL.test_lengths))} that the task has)",
    ),
    number("--samples", "training samples, of all lengths together", _USUAL.samples),
    number("--valid-samples", "most validation samples of a length", _USUAL.valid_samples),
    number("--test-samples", "most test samples of a length", _USUAL.test_samples),
    number("--seed", "the same seed gives the same data", _USUAL.seed),
    user_dir("a folder with tasks of your own"),
)
def generate_task(args: argparse.Namespace) -> None:
    """Write training, validation and test data of a task that needs no download.

        fairseq-posenc generate-task reverse data/reverse --lengths 1-20 --test-lengths 20,40,80
        fairseq-train data/reverse --task language_modeling --sample-break-mode eos \\
            --criterion answer_cross_entropy ...
        fairseq-validate data/reverse --valid-subset length20,length40,length80 --path ...

    LIST has lengths and ranges, such as 1-20,30 or 1-19:2. The data of DEST are those of
    fairseq-train --task FAMILY: pairs of input and output, or lines with an input, the symbol
    <answer> and the output. There is a test set for each length to test. No input of a test is
    in the training data, except of lengths with less than eight inputs, which are named.
    """
    from fairseq_posenc.basics.files import new_folder, refuse_existing

    lengths = _lengths(args.lengths, "--lengths")
    test_lengths = _lengths(args.test_lengths, "--test-lengths")
    quieten()
    if args.user_dir:
        load_plug_in(args.user_dir)
    from fairseq_posenc import generated  # noqa: F401 - registers the tasks

    task = GENERATED_TASKS.find(args.name)
    settings = Settings(
        args.name,
        args.family,
        lengths or task.among(_USUAL.lengths),
        test_lengths or task.among(_USUAL.test_lengths),
        args.samples,
        args.valid_samples,
        args.test_samples,
        args.seed,
    )
    settings.check()
    refuse_existing(args.dest)
    load_plug_in()
    from fairseq_posenc.generated.writing import write_task

    with new_folder(args.dest) as folder:
        written = write_task(settings, folder)
    counts = ", ".join(f"{name} {count:,}" for name, count in written.samples.items())
    print(f"{args.dest}: {counts} samples of at most {max(written.longest)} symbols")
    if written.shared:
        shared = ", ".join(map(str, written.shared))
        print(f"in the training data, too, as there are few: the test inputs of length {shared}")


def _lengths(text: Optional[str], flag: str) -> Tuple[int, ...]:
    """The lengths in the value of a flag, none if it is not given."""
    if text is None:
        return ()
    from fairseq_posenc.generated.lengths import read_lengths

    try:
        return read_lengths(text)
    except ValueError as error:
        raise UsageError(f"{flag} {text}: {error}") from error


COMMANDS = (generate_task,)
