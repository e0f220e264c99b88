"""``fairseq-posenc analyse``."""

import argparse
from pathlib import Path

from fairseq_posenc.cli.command import Command, load_plug_in

SEQUENCES = 8
THRESHOLD = 1e-3
DESCRIPTION = """\
Rank and sparsity of a checkpoint's attention matrices, layer by layer.

    fairseq-posenc analyse checkpoints/checkpoint_last.pt valid.bpe.txt
    fairseq-posenc analyse checkpoints/checkpoint_last.pt valid.bpe.txt --output attention.png

Table 3 of "Implementation and Experiments for GAU-based Model" (Liu, section 3.3) reports these
figures for a GAU with 128-channel keys; this command computes them for any model of this plug-in
on any text:

    matrix              rank / 512    sparsity
    q·k                 0.25          ≈ 0
    softmax(q·k/√d)     0.9983        10.03 %
    ReLU²(q·k/√d)       0.989         12.49 %

The paper does not say when a singular value or an entry counts as zero, nor which layers, texts and
checkpoint the figures come from. Here they are taken over all heads and sequences of a layer:

rank: the mean of torch.linalg.matrix_rank in float64, divided by the length. A singular value
    counts if it is above --tolerance times the largest one of its matrix. The default, length times
    the machine epsilon of float32 (6.1e-5 at 512 tokens), is the one that NumPy and PyTorch use for
    float32 matrices, the precision in which q and k are computed.
sparsity: the share of entries whose magnitude is at most --threshold times the largest in their
    row; every entry of an all-zero row counts. The default, 1e-3, is about the machine epsilon of
    float16: added to the largest entry, anything smaller is lost.

The second and third matrix use the full logits of the layer: terms that an encoding adds to q·k/√d
(T5 bias, TUPE, ALiBi) are included, and TUPE divides by √(2d) instead of √d. Later factors, such as
that of softmax_plus, are left out, whichever normaliser the model was trained with. Keys masked in
a causal masked LM count as zeros.

Only encoders are analysed. Causal softmax is lower triangular with a positive diagonal: in exact
arithmetic it always has full rank, and half of its entries are masked.

TEXT is tokenised like the training data, including BPE, in the source language of a translation
model. It is cut into sequences of --length tokens, with </s> after each line and, for a masked LM,
<s> before each sequence. No token is masked."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("checkpoint")
    parser.add_argument("text", metavar="TEXT")
    parser.add_argument("--output", type=Path, metavar="FILE", help="also draw the figures")
    parser.add_argument("--dict", metavar="FILE", help="dict.txt, if it is not found by itself")
    parser.add_argument("--length", type=int, help="tokens per sequence (512, or fewer)")
    parser.add_argument(
        "--sequences", type=int, default=SEQUENCES, help="most sequences to read (%(default)s)"
    )
    parser.add_argument(
        "--tolerance",
        type=float,
        help="smallest singular value that counts, as a share of the largest",
    )
    parser.add_argument(
        "--threshold", type=float, default=THRESHOLD, help="for sparsity, see above (%(default)g)"
    )


def run(args: argparse.Namespace) -> None:
    """Print the table and, with ``--output``, draw it."""
    load_plug_in()
    from fairseq_posenc.analysis.attention import report

    report(args)


COMMAND = Command(
    "analyse",
    "rank and sparsity of a checkpoint's attention matrices",
    DESCRIPTION,
    add_arguments,
    run,
)
