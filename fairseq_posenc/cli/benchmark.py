"""``fairseq-posenc benchmark``."""

import argparse

from fairseq_posenc.benchmark.options import DTYPES, JOBS, SIZES
from fairseq_posenc.cli.command import Command, load_plug_in

DESCRIPTION = """\
Time training steps, beam search and attention of architectures against each other.

    fairseq-posenc benchmark --archs transformer roformer_base --size base --layers 6
    fairseq-posenc benchmark --archs transformer "posenc_transformer --position-encoding learned"
    fairseq-posenc benchmark --jobs masked-lm --archs roberta_base tupe_r_masked_lm_base \
        --batch 4 --length 512
    fairseq-posenc benchmark --jobs lm-training lm-generation --archs transformer_lm \
        roformer_lm_small

    fairseq-posenc benchmark --all-encodings --jobs training masked-lm lm-training --length 256
    fairseq-posenc benchmark --lengths 512,1024,2048,4096 --threads 1 --plot attention.png

An entry of --archs is an architecture, with flags of its own if need be. The first entry is
the baseline: the others are given as ratios to it. In every round each model runs once, one
after the other, and a ratio compares two runs of the same round, so a machine that is slow
for a while does not favour one of them. Shown are the median of the rounds and the quartiles
of the ratios.

training    forward and backward of label-smoothed cross-entropy, with dropout, no optimiser
generation  beam search of fairseq-generate, exactly --length tokens a sentence
masked-lm   forward and backward of the masked-LM loss, with dropout, no optimiser, on sentences
            of --length tokens, one table for each if several are given; --archs are masked
            language models, "explicit ARCH", whose attention matrices PyTorch keeps in memory
            instead of using a fused kernel, or other libraries' models of the same shape:
            hf-roformer (pip install transformers), and gau-alpha, with the weights of our GAU of
            twice as many units as --layers (pip install gau-alpha 'transformers<5'); --vocabulary
            among the flags of an entry is its own
lm-training, lm-generation
            the same for language models in GPT-3's shape: cross-entropy of sentences of --length
            tokens, and beam search that continues prompts of half as many; --length 8 32 is for
            prompts of 8; --layers is that of the decoder
attention, causal-attention
            what --lengths asks for: forward and backward of one self-attention layer, its four
            projections included, of an encoder and of a decoder, on --batch sentences (1) of each
            length; entries of --archs are values of --attention, with flags of a model if need be,
            and have rotary unless they say otherwise; performer-pytorch, with --favor-kernel or
            --favor-features if need be, has the sizes and weights of ours and no positions (pip
            install performer-pytorch). --repeat is for the shortest length, a longer one has fewer
            rounds, at least 3. Shown as well: time a token, and the exponent of the length that
            fits the times best, over all lengths

Clocks: wall; processor (time of all threads, on the CPU); device (CUDA events, on a GPU).
Memory is the peak of two runs in a process of its own: on the CPU that of the whole process,
Python and PyTorch included, on a GPU what PyTorch had allocated. Arithmetic is that of the matrix
products, counted by PyTorch, also as a ratio: where a model takes longer than its arithmetic says,
the rest is memory traffic, small operations, or the library. It is not counted for attention
alone."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    subjects = parser.add_mutually_exclusive_group()
    subjects.add_argument(
        "--archs",
        nargs="+",
        metavar="'ARCH [FLAGS]'",
        help="transformer roformer_base; with --lengths every attention",
    )
    subjects.add_argument(
        "--all-encodings",
        action="store_true",
        help="in place of --archs: for the family of each job stock fairseq, then the plug-in with "
        "every position encoding",
    )
    parser.add_argument(
        "--jobs",
        nargs="+",
        choices=list(JOBS),
        help="training generation; with --lengths attention causal-attention",
    )
    parser.add_argument(
        "--size",
        choices=list(SIZES),
        default="base",
        help="; ".join("{}: {} channels, ffn {}, {} heads".format(k, *v) for k, v in SIZES.items()),
    )
    parser.add_argument("--layers", type=int, help="of each encoder and decoder (6)")
    parser.add_argument("--vocabulary", type=int, help="symbols (10000)")
    parser.add_argument("--batch", type=int, help="sentences (16; with --lengths 1)")
    lengths = parser.add_mutually_exclusive_group()
    lengths.add_argument(
        "--length",
        type=int,
        nargs="+",
        help="tokens of the longest source and target, one number for both or two (32); the "
        "other sentences of the batch are up to a quarter shorter; masked-lm: of all sentences",
    )
    lengths.add_argument("--lengths", metavar="L,L,...", help="time attention at these lengths")
    parser.add_argument("--repeat", type=int, default=11, help="rounds that count (11)")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--dtype", choices=DTYPES, default="float32")
    parser.add_argument("--threads", type=int, help="of PyTorch (its own default)")
    parser.add_argument("--seed", type=int, default=1, help="of parameters and sentences (1)")
    parser.add_argument("--skip-memory", action="store_true", help="do not measure memory")
    parser.add_argument("--csv", metavar="FILE", help="write the table")
    parser.add_argument("--json", metavar="FILE", help="write the table and the settings")
    parser.add_argument("--plot", metavar="FILE", help="with --lengths: draw time and memory")


def run(args: argparse.Namespace) -> None:
    """Measure and report."""
    load_plug_in()
    from fairseq_posenc.benchmark.report import run as run_benchmark

    run_benchmark(args)


COMMAND = Command(
    "benchmark",
    "time training, generation and attention of architectures",
    DESCRIPTION,
    add_arguments,
    run,
)
