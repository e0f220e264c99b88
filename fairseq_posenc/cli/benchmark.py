"""``fairseq-posenc benchmark``."""

import argparse

from fairseq_posenc.basics.errors import UsageError, flag_of
from fairseq_posenc.benchmark.options import DTYPES, JOBS, SIZES
from fairseq_posenc.cli.command import (
    argument,
    at_least,
    command,
    declare,
    device,
    load_plug_in,
    number,
    switch,
    user_dir,
)


def _subjects(parser: argparse.ArgumentParser) -> None:
    """Declare what is timed."""
    add = parser.add_mutually_exclusive_group().add_argument
    add(
        "--archs",
        nargs="+",
        metavar="'ARCH [FLAGS]'",
        help="models to time (transformer roformer_base; with --lengths every attention)",
    )
    add(
        "--all-encodings",
        action="store_true",
        help="instead of --archs: for each job, stock fairseq and the plug-in with every position "
        "encoding",
    )
    add(
        "--translate",
        nargs=3,
        metavar=("MODEL", "SOURCE", "REFERENCE"),
        help="instead of --archs: time translating raw text with a model folder",
    )


def _lengths(parser: argparse.ArgumentParser) -> None:
    """Declare the lengths of the texts."""
    add = parser.add_mutually_exclusive_group().add_argument
    add(
        "--length",
        type=int,
        nargs="+",
        help="tokens of the longest source and target, one number for both or two (32); the other "
        "sentences of the batch are up to a quarter shorter, except in masked-lm",
    )
    add("--lengths", metavar="L,L,...", help="time attention at these lengths")


@command(
    "benchmark",
    "time training, generation and attention of architectures",
    _subjects,
    argument(
        "--jobs",
        nargs="+",
        choices=list(JOBS),
        help="what to time (training generation; with --lengths attention causal-attention)",
    ),
    argument(
        "--size",
        choices=list(SIZES),
        default="base",
        help="; ".join("{}: {} channels, ffn {}, {} heads".format(k, *v) for k, v in SIZES.items()),
    ),
    number("--layers", "layers of each encoder and decoder (6)"),
    number("--vocabulary", "vocabulary size (10000)"),
    number("--batch", "sentences per batch (16; with --lengths 1)"),
    _lengths,
    number(
        "--documents",
        "masked-lm and lm-training: end a document, by </s>, after every N tokens on average",
    ),
    number(
        "--positions",
        "time one token of generation, with that many tokens so far, instead of whole texts; each "
        "round computes the next token",
        nargs="+",
        metavar="P",
    ),
    number("--repeat", "rounds, not counting warm-up", 11),
    device(),
    argument("--dtype", choices=DTYPES, default="float32", help="numbers of the models (float32)"),
    number("--threads", "threads of PyTorch (its default)"),
    number("--seed", "seed of parameters and sentences", 1),
    switch("--skip-memory", "do not measure memory"),
    argument("--csv", metavar="FILE", help="write the table"),
    argument("--json", metavar="FILE", help="write the table and the settings"),
    argument("--plot", metavar="FILE", help="with --lengths: draw time and memory"),
    user_dir("your encodings, and other parts of --archs"),
)
def benchmark(args: argparse.Namespace) -> None:
    """Time training steps, beam search and attention of architectures against each other.

        fairseq-posenc benchmark --archs transformer roformer_base --size base --layers 6
        fairseq-posenc benchmark --archs transformer \\
            "posenc_transformer --position-encoding learned"
        fairseq-posenc benchmark --jobs masked-lm --archs roberta_base tupe_r_masked_lm_base \\
            --batch 4 --length 512
        fairseq-posenc benchmark --jobs lm-training lm-generation --archs transformer_lm \\
            roformer_lm_small

        fairseq-posenc benchmark --all-encodings --jobs training masked-lm lm-training --length 256
        fairseq-posenc benchmark --lengths 512,1024,2048,4096 --threads 1 --plot attention.png

        fairseq-posenc benchmark --translate MODEL test.en test.de --repeat 3

    An entry of --archs is an architecture, optionally followed by flags. The first entry is the
    baseline: the others are reported as ratios to it. Each round runs every model once, and ratios
    compare runs of the same round, so a temporary slowdown of the machine does not favour any of
    them. The table shows the median over all rounds and the quartiles of the ratios.

    training    forward and backward pass of label-smoothed cross-entropy, with dropout, without
                optimiser
    generation  beam search of fairseq-generate, exactly --length tokens per sentence
    masked-lm   forward and backward pass of the masked-LM loss, with dropout, without optimiser, on
                sentences of --length tokens, with one table per length. Entries of --archs are
                masked language models; "explicit ARCH" computes and stores the attention matrices
                instead of using a fused kernel. --vocabulary in an entry overrides that of the
                command
    lm-training, lm-generation
                the same for language models in the shape of GPT-3: cross-entropy of sentences of
                --length tokens, and beam search that continues prompts of half that length;
                --length 8 32 sets the prompt length to 8; --layers counts decoder layers
    attention, causal-attention
                with --lengths: forward and backward pass of one self-attention layer, including its
                four projections, of an encoder and of a decoder, on --batch sentences (1) of each
                length. Entries of --archs are values of --attention, optionally followed by model
                flags, with rotary by default. --repeat counts the rounds at the shortest length;
                longer ones get fewer, but at least 3. The table also shows the time per token and
                the exponent of the length that best fits the times

    --documents 64 divides the texts of masked-lm and lm-training at random, as the comparison of a
    model with --document-mask needs it.

    --translate MODEL SOURCE REFERENCE times `fairseq-posenc translate` with a model folder on raw
    text: fairseq's search, and CTranslate2 in float32 and int8 if the folder has an export, with
    one thread and with two, or with --threads; and prints the BLEU of each.

    Clocks: wall; processor (time of all threads, on the CPU); device (CUDA events, on a GPU).
    Memory is the peak of two runs in a fresh process: on the CPU the memory of the whole process,
    including Python and PyTorch, on a GPU the memory allocated by PyTorch. GFLOP counts the
    operations of matrix products, as PyTorch reports them, and is also given as a ratio: time that
    it does not explain goes to memory traffic, small operations or the library. It is not counted
    for attention layers. Other libraries, and counts of what a model makes a GPU do, are in
    scripts/benchmark of the repository.
    """
    if args.translate:
        _refuse_others(args)
        from fairseq_posenc.benchmark import folders
        from fairseq_posenc.serving.model_folder import read_model_folder

        path, source, reference = args.translate
        threads = [args.threads] if args.threads else [1, 2]
        flags = [] if args.user_dir is None else ["--user-dir", args.user_dir]
        folder = read_model_folder(path, "--translate")
        folders.run(folder, source, reference, threads, args.repeat, flags)
        return
    load_plug_in(args.user_dir)
    from fairseq_posenc.benchmark.run import run as run_benchmark

    run_benchmark(args)


def _refuse_others(args: argparse.Namespace) -> None:
    """Refuse flags that have no meaning for a model folder, and fewer rounds than one."""
    parser = argparse.ArgumentParser()
    declare(parser, *benchmark.arguments)
    used = ("translate", "threads", "repeat", "user_dir")
    for name, usual in vars(parser.parse_args([])).items():
        if name not in used and getattr(args, name) != usual:
            raise UsageError(f"{flag_of(name)}: has no effect with --translate; drop it")
    at_least(args, threads=1, repeat=1)


COMMANDS = (benchmark,)
