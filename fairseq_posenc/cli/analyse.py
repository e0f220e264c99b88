"""``fairseq-posenc analyse``."""

import argparse
from pathlib import Path

from fairseq_posenc.cli.command import Command, load_plug_in

LENGTH = 512  # tokens, as in the paper, unless told or the model has fewer positions
SEQUENCES = 8
THRESHOLD = 1e-3
DESCRIPTION = """\
Rank and sparsity of a checkpoint's attention matrices, layer by layer.

    fairseq-posenc analyse checkpoints/checkpoint_last.pt valid.bpe.txt
    fairseq-posenc analyse checkpoints/checkpoint_last.pt valid.bpe.txt --output attention.png

What Table 3 of "Implementation and Experiments for GAU-based Model" (Liu, section 3.3) reports of
its GAU with keys of 128 channels, for any model of this plug-in, on any text:

    matrix              rank / 512    sparsity
    q·k                 0.25          ≈ 0
    softmax(q·k/√d)     0.9983        10.03 %
    ReLU²(q·k/√d)       0.989         12.49 %

The paper says neither when a singular value or an entry counts as zero, nor of which layers, texts
and checkpoint these figures are. Here, over all heads and sequences of a layer:

rank: the mean of torch.linalg.matrix_rank in float64, divided by the length. A singular value
    counts if it is above --tolerance times the largest one of its matrix. The default, length times
    the machine epsilon of float32 (6.1e-5 at 512 tokens), is what NumPy and PyTorch take for a
    matrix in float32, the precision that q and k are computed in.
sparsity: the share of entries that are, in magnitude, at most --threshold times the largest one in
    their row; all of a row without any other value than 0. The default, 1e-3, is the machine
    epsilon of float16: less than that is lost beside the largest entry.

The logits are the layer's own: where an encoding adds terms to q·k/√d (T5 bias, TUPE, ALiBi), they
are in the second and the third matrix, and TUPE's √(2d) stands for √d. Factors after that, such as
that of softmax_plus, are left out, whichever normaliser the model was trained with. Keys that
a causal masked LM hides count as zeros there.

Only encoders are analysed. Softmax in a decoder is triangular with a positive diagonal: in exact
arithmetic its rank is always full, and half of it is hidden.

TEXT is tokens as the training data has them, after BPE, in the source language of a translation
model. It is cut into sequences of --length tokens, each line ended by </s>, and for a masked LM
each sequence begun by <s>. Nothing is masked."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("checkpoint")
    parser.add_argument("text", metavar="TEXT")
    parser.add_argument("--output", type=Path, metavar="FILE", help="draw the table, too")
    parser.add_argument("--dict", metavar="FILE", help="dict.txt, if it is not found")
    parser.add_argument("--length", type=int, help=f"tokens ({LENGTH}, or fewer)")
    parser.add_argument(
        "--sequences", type=int, default=SEQUENCES, help="at most this many (%(default)s)"
    )
    parser.add_argument(
        "--tolerance", type=float, help="least share of the largest singular value (see above)"
    )
    parser.add_argument(
        "--threshold", type=float, default=THRESHOLD, help="of sparsity (%(default)g)"
    )


def run(args: argparse.Namespace) -> None:
    """Print the table, and draw it."""
    load_plug_in()
    from fairseq_posenc.analysis.attention import Options, report

    options = Options(args.sequences, args.length, LENGTH, args.tolerance, args.threshold)
    report(args.checkpoint, args.text, args.dict, options, args.output)


COMMAND = Command(
    "analyse",
    "rank and sparsity of a checkpoint's attention matrices",
    DESCRIPTION,
    add_arguments,
    run,
)
