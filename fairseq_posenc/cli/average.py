"""``fairseq-posenc average``."""

import argparse
import os
from typing import List

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.cli.command import Command, load_plug_in


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "--inputs", nargs="+", required=True, metavar="PATH", help="checkpoints, or one folder"
    )
    parser.add_argument("--output", required=True, metavar="FILE", help="the file to write")
    number = parser.add_mutually_exclusive_group()
    number.add_argument(
        "--num-epoch-checkpoints",
        type=int,
        metavar="N",
        help="average the last N checkpoint<epoch>.pt of the folder",
    )
    number.add_argument(
        "--num-update-checkpoints",
        type=int,
        metavar="N",
        help="average the last N checkpoint_<epoch>_<update>.pt of the folder",
    )
    number.add_argument(
        "--num-best-checkpoints",
        type=int,
        metavar="N",
        help="average the best N checkpoint.best_<metric>_<score>.pt of the folder",
    )
    parser.add_argument(
        "--checkpoint-upper-bound",
        type=int,
        metavar="NUMBER",
        help="last epoch, or update, to use with --num-epoch-checkpoints or "
        "--num-update-checkpoints",
    )


def select(args: argparse.Namespace) -> List[str]:
    """Return the checkpoints that the flags select.

    Raises:
        UsageError: the flags contradict each other, or there are too few checkpoints.
    """
    from fairseq_posenc.checkpoints import averaging

    counts = (
        (averaging.EPOCH, args.num_epoch_checkpoints),
        (averaging.UPDATE, args.num_update_checkpoints),
        (averaging.BEST, args.num_best_checkpoints),
    )
    chosen = [(kind, count) for kind, count in counts if count is not None]
    bound = args.checkpoint_upper_bound
    if bound is not None and (not chosen or chosen[0][0] is averaging.BEST):
        raise UsageError(
            f"--checkpoint-upper-bound {bound}: needs --num-epoch-checkpoints or "
            "--num-update-checkpoints"
        )
    if not chosen:
        folders = [path for path in args.inputs if os.path.isdir(path)]
        if folders:
            raise UsageError(
                f"--inputs {folders[0]}: is a folder; say which of its checkpoints with "
                "--num-epoch-checkpoints N, --num-update-checkpoints N or --num-best-checkpoints N"
            )
        return list(args.inputs)
    (kind, count) = chosen[0]
    if len(args.inputs) != 1:
        raise UsageError(
            f"{kind.flag} {count}: needs one folder as --inputs, not {len(args.inputs)} paths"
        )
    return averaging.find_checkpoints(args.inputs[0], kind, count, bound)


def run(args: argparse.Namespace) -> None:
    """Average the checkpoints and write the result."""
    load_plug_in()
    from fairseq_posenc.basics.files import check_writable
    from fairseq_posenc.checkpoints.averaging import average_checkpoints
    from fairseq_posenc.checkpoints.reading import write_checkpoint

    paths = select(args)
    check_writable(args.output, "--output")
    if os.path.realpath(args.output) in map(os.path.realpath, paths):
        raise UsageError(f"--output {args.output}: is one of the inputs; give another name")
    print(f"averaging {len(paths)} checkpoints:")
    for path in paths:
        print("  " + path)
    write_checkpoint(average_checkpoints(paths), args.output)
    print("wrote " + args.output)


COMMANDS = (
    Command(
        "average",
        "average the parameters of several checkpoints",
        "Average the parameters of several checkpoints into one for fairseq-generate.\n\n"
        "The result has no optimiser state: use it for generation, or to start a new training run\n"
        "with --finetune-from-model or --restore-file.",
        add_arguments,
        run,
    ),
)
