"""``fairseq-posenc plot`` and ``analyse``: what a model has learned, drawn and in numbers."""

import argparse
from pathlib import Path

from fairseq_posenc.analysis.training import METRICS
from fairseq_posenc.cli.command import (
    argument,
    command,
    group,
    load_plug_in,
    number,
    place,
    quieten,
    user_dir,
)

LENGTH = 128  # default number of positions; fewer if the model has fewer


@command(
    "positions",
    "what a checkpoint learned about positions",
    argument("checkpoint"),
    place("OUTPUT", "a .png, .pdf or .svg file", type=Path),
    argument("--length", type=int, help=f"positions drawn ({LENGTH}, or fewer)"),
    user_dir(),
)
def positions(args: argparse.Namespace) -> None:
    """Plot what a checkpoint learned about positions.

        fairseq-posenc plot positions checkpoints/checkpoint_last.pt positions.png
        fairseq-posenc plot positions checkpoints/checkpoint_last.pt positions.png --length 512

    Content-free logits (TUPE, T5 bias, ALiBi, the positional part of BERT-A^d) are drawn as one
    heat map per head, with query positions down and key positions across, as in TUPE Figure 5. The
    heads of a row share one colour scale, from the 1st to the 99th percentile. Where several
    encodings are summed, or [CLS] is untied, the sum is drawn last. For Transformer-XL, the
    term v·(r W_kR) is drawn for the first and the last layer. A learned table is drawn as the
    cosine similarities of its vectors, less their mean.

    For rotary, the plot shows the long-term decay of RoFormer Figure 2: the bound of Eq. 29 by
    relative distance. Left: from the formula alone, 2/d Σ|S_i|. Right: with the weights of each
    layer, Σ|S_{i+1}||h_{i+1} - h_i| relative to its value at distance 0, averaged over heads. Here
    h_i is the expectation of q_i k_i* for two tokens with the same input, whose channels are
    independent with unit variance.
    """
    load_plug_in(args.user_dir)
    from fairseq_posenc.analysis.positions import plot

    plot(args.checkpoint, args.output, args.length, LENGTH)


@command(
    "training",
    "loss curves from training logs",
    argument("logs", nargs="+", type=Path, metavar="LOG"),
    argument("--output", required=True, type=Path, metavar="FILE", help="the figure to write"),
    argument(
        "--labels",
        nargs="+",
        default=(),
        metavar="NAME",
        help="names of the runs; runs with the same name are averaged (default: their folders)",
    ),
    argument("--metric", choices=METRICS, default="loss", help="what is drawn (loss)"),
    number(
        "--from",
        "leave out earlier updates, whose high loss would flatten the curves",
        0,
        dest="first",
        metavar="UPDATE",
    ),
)
def training(args: argparse.Namespace) -> None:
    """Plot loss curves from the fairseq-train logs of one run, or of several side by side.

        fairseq-posenc plot training --output curves.png runs/quickstart/train.log
        fairseq-posenc plot training --output curves.png --labels stock ours \\
            -- a/train.log b/train.log
        fairseq-posenc plot training --output curves.png --labels a a b b \\
            -- {a,b}-seed{1,2}/train.log

    A log is the output of fairseq-train, or its --log-file, with --log-format json or simple.
    Hollow points mark the training loss, lines the validation loss. Runs with the same name, such
    as several seeds, are drawn as one curve: their mean where all of them have a value, with the
    range of the validation loss shaded.
    """
    quieten()
    from fairseq_posenc.analysis.training import plot

    plot(args.logs, args.labels, args.metric, args.first, args.output)


@command(
    "analyse",
    "rank and sparsity of a checkpoint's attention matrices",
    argument("checkpoint"),
    place("TEXT"),
    argument("--output", type=Path, metavar="FILE", help="also draw the figures"),
    argument("--dict", metavar="FILE", help="dict.txt, if it is not found by itself"),
    number("--length", "tokens per sequence (512, or fewer)"),
    number("--sequences", "most sequences to read", 8, at_least=1),
    number(
        "--tolerance",
        "smallest singular value that counts, as a share of the largest",
        kind=float,
        at_least=0,
        below=1,
    ),
    number("--threshold", "for sparsity, see above", 1e-3, float, at_least=0, below=1),
    user_dir(),
)
def analyse(args: argparse.Namespace) -> None:
    """Rank and sparsity of a checkpoint's attention matrices, layer by layer.

        fairseq-posenc analyse checkpoints/checkpoint_last.pt valid.bpe.txt
        fairseq-posenc analyse checkpoints/checkpoint_last.pt valid.bpe.txt --output attention.png

    Print the figures of Table 3 of "Implementation and Experiments for GAU-based Model" (Liu,
    section 3.3) for q·k, softmax(q·k/√d) and ReLU²(q·k/√d), over all heads and sequences, for each
    layer of an encoder. Where the paper is silent, they are computed as follows:

    rank: the mean of torch.linalg.matrix_rank in float64, over the length. A singular value counts
        if it exceeds --tolerance (length times float32's epsilon) times the largest of its matrix.
    sparsity: the share of entries at most --threshold times the largest of their row.

    Terms that an encoding adds to the logits are included; later factors, such as that of
    softmax_plus, are not.

    TEXT is tokenised like the training data, including BPE, in the source language of a translation
    model, and cut into sequences of --length tokens. No token is masked.
    """
    load_plug_in(args.user_dir)
    from fairseq_posenc.analysis.attention import report

    report(args)


FIGURES = (positions, training)
COMMANDS = (
    group(
        "plot",
        "draw figures",
        "Plot what a model learned about positions, or loss curves.",
        "FIGURE",
        FIGURES,
    ),
    analyse,
)
