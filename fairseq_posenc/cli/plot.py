"""``fairseq-posenc plot``: one command per kind of figure."""

import argparse
from pathlib import Path

from fairseq_posenc.analysis.training import METRICS
from fairseq_posenc.cli.command import Command, add_commands, load_plug_in, quieten

LENGTH = 128  # default number of positions; fewer if the model has fewer

POSITIONS = """\
Plot what a checkpoint learned about positions.

    fairseq-posenc plot positions checkpoints/checkpoint_last.pt positions.png
    fairseq-posenc plot positions checkpoints/checkpoint_last.pt positions.png --length 512

Content-free logits (TUPE, T5 bias, ALiBi, the positional part of BERT-A^d) are drawn as one heat
map per head, with query positions down and key positions across, as in TUPE Figure 5. The heads of
a row share one colour scale, from the 1st to the 99th percentile. Where several encodings are
summed, or [CLS] is untied, the sum is drawn last. For Transformer-XL, they are its term v·(r W_kR)
in the first and the last layer. A learned table is drawn as the cosine similarities of its vectors,
less their mean.

For rotary, the plot shows the long-term decay of RoFormer Figure 2: the bound of Eq. 29 by relative
distance. Left: from the formula alone, 2/d Σ|S_i|. Right: with the weights of each layer,
Σ|S_{i+1}||h_{i+1} - h_i| relative to its value at distance 0, averaged over heads. Here h_i is the
expectation of q_i k_i* for two tokens with the same input, whose channels are independent with unit
variance."""

TRAINING = """\
Plot loss curves from the fairseq-train logs of one run, or of several side by side.

    fairseq-posenc plot training --output curves.png runs/quickstart/train.log
    fairseq-posenc plot training --output curves.png --labels stock ours -- a/train.log b/train.log
    fairseq-posenc plot training --output curves.png --labels a a b b -- {a,b}-seed{1,2}/train.log

A log is the output of fairseq-train, or its --log-file, with --log-format json or simple. Hollow
points mark the training loss, lines the validation loss. Runs with the same name, such as several
seeds, are drawn as one curve: their mean where all of them have a value, with the range of the
validation loss shaded."""

EXTRAPOLATION = """\
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


def add_positions(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("checkpoint")
    parser.add_argument("output", type=Path, metavar="OUTPUT", help="a .png, .pdf or .svg file")
    parser.add_argument("--length", type=int, help=f"positions drawn ({LENGTH}, or fewer)")


def plot_positions(args: argparse.Namespace) -> None:
    """Draw the figure."""
    load_plug_in()
    from fairseq_posenc.analysis.positions_figure import plot

    plot(args.checkpoint, args.output, args.length, LENGTH)


def add_training(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("logs", nargs="+", type=Path, metavar="LOG")
    parser.add_argument("--output", required=True, type=Path, metavar="FILE")
    parser.add_argument(
        "--labels",
        nargs="+",
        default=(),
        metavar="NAME",
        help="names of the runs; runs with the same name are averaged (default: their folders)",
    )
    parser.add_argument("--metric", choices=METRICS, default="loss")
    parser.add_argument(
        "--from",
        dest="first",
        type=int,
        default=0,
        metavar="UPDATE",
        help="leave out earlier updates, whose high loss would flatten the curves (default: 0)",
    )


def plot_training(args: argparse.Namespace) -> None:
    """Draw the figure."""
    quieten()
    from fairseq_posenc.analysis.training import plot

    plot(args.logs, args.labels, args.metric, args.first, args.output)


def add_extrapolation(parser: argparse.ArgumentParser) -> None:
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


def plot_extrapolation(args: argparse.Namespace) -> None:
    """Measure, print and draw."""
    load_plug_in()
    from fairseq_posenc.analysis.extrapolation_figure import plot

    plot(args)


FIGURES = (
    Command(
        "positions",
        "what a checkpoint learned about positions",
        POSITIONS,
        add_positions,
        plot_positions,
    ),
    Command("training", "loss curves from training logs", TRAINING, add_training, plot_training),
    Command(
        "extrapolation",
        "perplexity against context length",
        EXTRAPOLATION,
        add_extrapolation,
        plot_extrapolation,
    ),
)


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
