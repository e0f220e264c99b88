"""``fairseq-posenc generate-task``."""

import argparse
from typing import Tuple

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
from fairseq_posenc.generated.registry import FAMILIES
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
        default="1-10",
        metavar="LIST",
        help="lengths of training and validation (1-10)",
    ),
    argument(
        "--test-lengths",
        default="5,10,15,20,30,40",
        metavar="LIST",
        help="lengths with a test set each (5,10,15,20,30,40)",
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

    settings = Settings(
        args.name,
        args.family,
        _lengths(args.lengths, "--lengths"),
        _lengths(args.test_lengths, "--test-lengths"),
        args.samples,
        args.valid_samples,
        args.test_samples,
        args.seed,
    )
    quieten()
    if args.user_dir:
        load_plug_in(args.user_dir)
    from fairseq_posenc import generated  # noqa: F401 - registers the tasks

    settings.check()
    refuse_existing(args.dest)
    load_plug_in()
    from fairseq_posenc.generated.writing import write_task

    with new_folder(args.dest) as folder:
        written = write_task(settings, folder)
    counts = ", ".join(f"{name} {count:,}" for name, count in written.samples.items())
    print(f"{args.dest}: {counts} samples of at most {max(written.longest)} symbols")
    if written.shared:
        lengths = ", ".join(map(str, written.shared))
        print(f"in the training data, too, as there are few: the test inputs of length {lengths}")


def _lengths(text: str, flag: str) -> Tuple[int, ...]:
    from fairseq_posenc.generated.lengths import read_lengths

    try:
        return read_lengths(text)
    except ValueError as error:
        raise UsageError(f"{flag} {text}: {error}") from error


COMMANDS = (generate_task,)
