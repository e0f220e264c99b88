"""``fairseq-posenc plot`` and ``analyse``: what a model has learned, in figures and numbers."""

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
    place("OUTPUT", "the figure to write: .png, .pdf or .svg", type=Path),
    argument("--length", type=int, help=f"positions to draw ({LENGTH}, or all if fewer)"),
    user_dir(),
)
def positions(args: argparse.Namespace) -> None:
    """Plot what a checkpoint learned about positions.

        fairseq-posenc plot positions checkpoints/checkpoint_last.pt positions.png
        fairseq-posenc plot positions checkpoints/checkpoint_last.pt positions.png --length 512

    Content-free logits (TUPE, T5 bias, ALiBi, the positional part of BERT-A^d) are drawn as one
    heat map per head, with query positions downwards and key positions across, as in TUPE Figure 5.
    The heads of a row share one colour scale, from the 1st to the 99th percentile of their logits.
    If several encodings are summed, or [CLS] is untied, the sum of all terms is drawn last. For
    Transformer-XL, the term v·(r W_kR) is drawn for the first and the last layer. For a learned
    table, the cosine similarities of its vectors are drawn, after their mean is subtracted.

    For rotary, the plot shows the long-term decay of RoFormer Figure 2: the bound of Eq. 29 against
    the relative distance. Left: from the formula alone, 2/d Σ|S_i|. Right: with the weights of each
    layer, Σ|S_{i+1}||h_{i+1} - h_i| relative to its value at distance 0, averaged over heads. Here
    h_i is the expectation of q_i k_i* for two tokens with the same input vector, whose channels are
    independent and have unit variance.
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
        help="names of the runs; runs with the same name are averaged (default: the logs' folders)",
    ),
    argument("--metric", choices=METRICS, default="loss", help="the value to plot (loss)"),
    number(
        "--from",
        "first update to plot; high losses before it would flatten the curves",
        0,
        dest="first",
        metavar="UPDATE",
    ),
)
def training(args: argparse.Namespace) -> None:
    """Plot loss curves from the fairseq-train logs of one or more runs in one figure.

        fairseq-posenc plot training --output curves.png runs/quickstart/train.log
        fairseq-posenc plot training --output curves.png --labels stock ours \\
            -- a/train.log b/train.log
        fairseq-posenc plot training --output curves.png --labels a a b b \\
            -- {a,b}-seed{1,2}/train.log

    A log is the output of fairseq-train, or its --log-file, with --log-format json or simple.
    Hollow points show the training loss, and lines the validation loss. Runs with the same name,
    such as several seeds, are drawn as one curve: the mean at the updates for which all of them
    have a value. The range of their validation losses is shaded.
    """
    quieten()
    from fairseq_posenc.analysis.training import plot

    plot(args.logs, args.labels, args.metric, args.first, args.output)


@command(
    "analyse",
    "rank and sparsity of a checkpoint's attention matrices",
    argument("checkpoint"),
    place("TEXT"),
    argument("--output", type=Path, metavar="FILE", help="also plot rank and sparsity"),
    argument("--dict", metavar="FILE", help="the model's dict.txt, if not found automatically"),
    number("--length", "tokens per sequence (512, or fewer if the model has fewer positions)"),
    number("--sequences", "largest number of sequences to read", 8, at_least=1),
    number(
        "--tolerance",
        "singular values above this share of the largest count for the rank",
        kind=float,
        at_least=0,
        below=1,
    ),
    number("--threshold", "threshold of sparsity (see above)", 1e-3, float, at_least=0, below=1),
    user_dir(),
)
def analyse(args: argparse.Namespace) -> None:
    """Rank and sparsity of a checkpoint's attention matrices, layer by layer.

        fairseq-posenc analyse checkpoints/checkpoint_last.pt valid.bpe.txt
        fairseq-posenc analyse checkpoints/checkpoint_last.pt valid.bpe.txt --output attention.png

    For each layer of an encoder, print rank and sparsity of q·k, softmax(q·k/√d) and ReLU²(q·k/√d),
    as means over all heads and sequences, as in Table 3 of "Implementation and Experiments for
    GAU-based Model" (Liu, section 3.3). These definitions settle what the paper leaves open:

    rank: torch.linalg.matrix_rank in float64, divided by the length. A singular value counts if it
        exceeds --tolerance (length times float32's epsilon) times the largest of its matrix.
    sparsity: the share of entries that are at most --threshold times the largest of their row.

    Terms that an encoding adds to the logits are included. Later factors, such as the factor of
    softmax_plus, are left out.

    TEXT has to be tokenised like the training data, including BPE; for a translation model, it has
    to be in the source language. It is cut into sequences of --length tokens. No token is masked.
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
