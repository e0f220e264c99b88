"""``fairseq-posenc plot extrapolation``."""

import argparse
from pathlib import Path

from fairseq_posenc.cli.command import Command, load_plug_in

DESCRIPTION = """\
Plot perplexity against context length, for checkpoints and settings side by side.

    fairseq-posenc plot extrapolation DATA-BIN --output curves.png --lengths 64,128,256,512,1024 \\
        rotary=runs/rotary/checkpoint_last.pt alibi=runs/alibi/checkpoint_last.pt \\
        "yarn=runs/rotary/checkpoint_last.pt \\
            {'rotary_scaling': 'yarn', 'rotary_scaling_factor': 8}"

NAME=CHECKPOINT is a curve; a dictionary after it overrides settings of the model, as
--model-overrides does in fairseq. Runs of the same NAME, as of several seeds, make one curve: the
mean of their perplexities, with their range shaded.

Context length L: the model reads windows of L tokens, each from position 0, and is scored on the
last K tokens of a window (--last, half of the shortest length unless given), on tokens that see
the L - K + 1 to L tokens before them. The windows of every L end at the same places. So every
length and every model is scored on the same tokens, and what differs is how far back they see.

The usual measure cuts the text into blocks of L and scores all of it. There a longer block looks
better for having fewer beginnings, in which tokens see little. It is --lengths L --last L here, one
length at a time, up to an incomplete block at the end.

The curve of a model with a table of positions ends where the table does. A dashed line marks the
length of training. The figures are printed as a table, too, and written to --csv."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("data", metavar="DATA-BIN", help="what fairseq-preprocess made")
    parser.add_argument("runs", nargs="+", metavar="NAME=CHECKPOINT")
    parser.add_argument("--output", required=True, type=Path, metavar="PNG")
    parser.add_argument("--csv", type=Path, metavar="CSV", help="write the figures, too")
    parser.add_argument("--lengths", required=True, metavar="L,L,...", help="context lengths")
    parser.add_argument("--last", type=int, metavar="K", help="tokens scored of a window")
    parser.add_argument("--subset", default="valid", help="text of DATA-BIN (valid)")
    parser.add_argument(
        "--tokens", type=int, metavar="N", help="score N tokens, spread over the text (all)"
    )
    parser.add_argument("--max-tokens", type=int, default=8192, help="of a batch (8192)")
    parser.add_argument("--cpu", action="store_true", help="leave a GPU alone")


def run(args: argparse.Namespace) -> None:
    """Measure, print and draw."""
    load_plug_in()
    from fairseq_posenc.analysis.extrapolation_figure import plot

    plot(args)


COMMAND = Command(
    "extrapolation", "perplexity against context length", DESCRIPTION, add_arguments, run
)
