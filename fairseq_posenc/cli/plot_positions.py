"""``fairseq-posenc plot positions``."""

import argparse
from pathlib import Path

from fairseq_posenc.cli.command import Command, load_plug_in

LENGTH = 128  # default number of positions; fewer if the model has fewer
DESCRIPTION = """\
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("checkpoint")
    parser.add_argument("output", type=Path, metavar="OUTPUT", help="a .png, .pdf or .svg file")
    parser.add_argument("--length", type=int, help=f"positions drawn ({LENGTH}, or fewer)")


def run(args: argparse.Namespace) -> None:
    """Draw the figure."""
    load_plug_in()
    from fairseq_posenc.analysis.positions_figure import plot

    plot(args.checkpoint, args.output, args.length, LENGTH)


COMMAND = Command(
    "positions", "what a checkpoint learned about positions", DESCRIPTION, add_arguments, run
)
