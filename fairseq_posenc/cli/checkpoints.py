"""``fairseq-posenc average`` and ``model-flags``."""

import argparse
import os
import shlex
from typing import List

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.cli.command import argument, command, load_plug_in, number, place, user_dir


def _counts(parser: argparse.ArgumentParser) -> None:
    one = parser.add_mutually_exclusive_group()
    for which, name, what in (
        ("epoch", "last", "checkpoint<epoch>.pt"),
        ("update", "last", "checkpoint_<epoch>_<update>.pt"),
        ("best", "best", "checkpoint.best_<metric>_<score>.pt"),
    ):
        shown = f"average the {name} N files {what} in the folder of --inputs"
        one.add_argument(f"--num-{which}-checkpoints", type=int, metavar="N", help=shown)


def select(args: argparse.Namespace) -> List[str]:
    """Return the checkpoints that the flags select."""
    from fairseq_posenc.checkpoints import averaging

    kinds = (averaging.EPOCH, averaging.UPDATE, averaging.BEST)
    counts = (args.num_epoch_checkpoints, args.num_update_checkpoints, args.num_best_checkpoints)
    chosen = [(kind, count) for kind, count in zip(kinds, counts) if count is not None]
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
                f"--inputs {folders[0]}: is a folder; choose its checkpoints with "
                "--num-epoch-checkpoints N, --num-update-checkpoints N or --num-best-checkpoints N"
            )
        return list(args.inputs)
    (kind, count) = chosen[0]
    if len(args.inputs) != 1:
        raise UsageError(
            f"{kind.flag} {count}: needs one folder as --inputs, not {len(args.inputs)} paths"
        )
    return averaging.find_checkpoints(args.inputs[0], kind, count, bound)


@command(
    "average",
    "average the parameters of several checkpoints",
    argument(
        "--inputs", nargs="+", required=True, metavar="PATH", help="checkpoints, or one folder"
    ),
    argument("--output", required=True, metavar="FILE", help="the file to write"),
    _counts,
    number(
        "--checkpoint-upper-bound",
        "last epoch (for --num-epoch-checkpoints) or last update (for --num-update-checkpoints)",
        metavar="NUMBER",
    ),
    user_dir(),
)
def average(args: argparse.Namespace) -> None:
    """Average the parameters of several checkpoints into one checkpoint for fairseq-generate.

    The result has no optimiser state: use it for generation, or to start a new training run
    with --finetune-from-model or --restore-file.
    """
    load_plug_in(args.user_dir)
    from fairseq_posenc.basics.files import check_writable, refuse_own_source
    from fairseq_posenc.checkpoints.averaging import average_checkpoints
    from fairseq_posenc.checkpoints.reading import write_checkpoint

    paths = select(args)
    check_writable(args.output, "--output")
    refuse_own_source(args.output, *paths, flag="--output")
    print(f"averaging {len(paths)} checkpoints:")
    for path in paths:
        print("  " + path)
    write_checkpoint(average_checkpoints(paths), args.output)
    print("wrote " + args.output)


@command(
    "model-flags",
    "print the flags that continue the training of a model",
    place(
        "CHECKPOINT",
        "a checkpoint of this plug-in, or of fairseq's transformer, transformer_lm or roberta",
    ),
    argument("--position-encoding", metavar="NAME", help="encoding to continue with (the model's)"),
    user_dir(),
)
def model_flags(args: argparse.Namespace) -> None:
    """Print the architecture, shape, task and criterion of a model as flags for fairseq-train.

    With --finetune-from-model, fairseq-train reads the parameters from the checkpoint, but takes
    the shape of the model from its command line.

        flags=$(fairseq-posenc model-flags model.pt --position-encoding rotary)
        eval "fairseq-train DATA $flags --user-dir fairseq_posenc --finetune-from-model model.pt"
    """
    load_plug_in(args.user_dir)
    from fairseq_posenc.cli.model_flags import flags_with

    print(shlex.join(flags_with(args.checkpoint, args.position_encoding)))


COMMANDS = (average, model_flags)
