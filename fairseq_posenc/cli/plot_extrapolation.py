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

Each NAME=CHECKPOINT is a curve; a dictionary after it overrides settings of the model, as
--model-overrides does in fairseq. Runs with the same NAME, such as several seeds, share one curve:
the mean of their perplexities, with their range shaded.

Context length L: the model reads windows of L tokens, each starting at position 0, and is scored on
the last K tokens of each window (--last, by default half of the shortest length), which see the
L - K + 1 to L tokens before them. The windows of every L end at the same positions of the text, so
all lengths and models are scored on the same tokens and differ only in how far back they see.

The usual measure cuts the text into blocks of L tokens and scores every token. Longer blocks then
look better simply because fewer tokens are near the start of a block. For that measure, run
--lengths L --last L one length at a time; an incomplete block at the end is left out.

The curve of a model with a position table ends at the length of the table. A dashed line marks the
training length. The perplexities are also printed as a table and written to --csv."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("data", metavar="DATA-BIN", help="output folder of fairseq-preprocess")
    parser.add_argument("runs", nargs="+", metavar="NAME=CHECKPOINT")
    parser.add_argument("--output", required=True, type=Path, metavar="PNG")
    parser.add_argument("--csv", type=Path, metavar="CSV", help="also write the perplexities")
    parser.add_argument("--lengths", required=True, metavar="L,L,...", help="context lengths")
    parser.add_argument("--last", type=int, metavar="K", help="tokens scored per window")
    parser.add_argument("--subset", default="valid", help="subset of DATA-BIN (valid)")
    parser.add_argument(
        "--tokens", type=int, metavar="N", help="score only N tokens, spread over the text"
    )
    parser.add_argument("--max-tokens", type=int, default=8192, help="tokens per batch (8192)")
    parser.add_argument("--cpu", action="store_true", help="do not use a GPU")


def run(args: argparse.Namespace) -> None:
    """Measure, print and draw."""
    load_plug_in()
    from fairseq_posenc.analysis.extrapolation_figure import plot

    plot(args)


COMMAND = Command(
    "extrapolation", "perplexity against context length", DESCRIPTION, add_arguments, run
)
