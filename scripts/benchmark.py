#!/usr/bin/env python3
"""Time training steps, beam search and attention of architectures against each other.

    python scripts/benchmark.py --archs transformer roformer_base --size base --layers 6
    python scripts/benchmark.py --archs transformer "posenc_transformer --position-encoding learned"
    python scripts/benchmark.py --jobs masked-lm --archs roberta_base tupe_r_masked_lm_base \
        --batch 4 --length 512
    python scripts/benchmark.py --jobs lm-training lm-generation --archs transformer_lm \
        roformer_lm_small

    python scripts/benchmark.py --all-encodings --jobs training masked-lm lm-training --length 256
    python scripts/benchmark.py --lengths 512,1024,2048,4096 --threads 1 --plot attention.png

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
the rest is memory traffic, small operations, or the library. It is not counted for attention alone.
"""

import argparse
import csv
import importlib.util
import io
import json
import os
import platform
import sys
from typing import Any, Dict, List, Optional

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import benchmark_lengths  # noqa: E402
import torch  # noqa: E402
from benchmark_attention import ENTRIES, check_entry  # noqa: E402
from benchmark_jobs import BEAM, DTYPES, SIZES  # noqa: E402
from benchmark_masked_lm import EXPLICIT, split_entry  # noqa: E402
from benchmark_measure import JOBS, measure  # noqa: E402
from benchmark_peers import PEERS  # noqa: E402
from fairseq.models import ARCH_MODEL_REGISTRY  # noqa: E402
from plot_extrapolation import read_lengths  # noqa: E402

import fairseq_posenc  # noqa: E402, F401
from fairseq_posenc.errors import UsageError, flag_of  # noqa: E402

# what is not given, without --lengths and with it
USUAL = {
    "jobs": ["training", "generation"],
    "archs": ["transformer", "roformer_base"],
    "layers": 6,
    "vocabulary": 10000,
    "batch": 16,
    "length": [32],
}
ATTENTION = ["attention", "causal-attention"]
WITH_LENGTHS = {"jobs": ATTENTION, "archs": ENTRIES, "layers": 1, "vocabulary": 5, "batch": 1}


def get_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
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
    parser.add_argument("--dtype", choices=list(DTYPES), default="float32")
    parser.add_argument("--threads", type=int, help="of PyTorch (its own default)")
    parser.add_argument("--seed", type=int, default=1, help="of parameters and sentences (1)")
    parser.add_argument("--skip-memory", action="store_true", help="do not measure memory")
    parser.add_argument("--csv", metavar="FILE", help="write the table")
    parser.add_argument("--json", metavar="FILE", help="write the table and the settings")
    parser.add_argument("--plot", metavar="PNG", help="with --lengths: draw time and memory")
    return parser


def complete(args: argparse.Namespace) -> None:
    """Fill in, in place, what was not given and depends on ``--lengths``.

    Raises:
        UsageError: naming a flag that says nothing about attention, or lengths that are none.
    """
    defaults: Dict[str, Any] = USUAL
    if args.lengths:
        for name in ("layers", "vocabulary", "all_encodings"):
            if getattr(args, name):
                raise UsageError(f"{flag_of(name)}: --lengths times one layer alone; drop the flag")
        defaults = {**WITH_LENGTHS, "length": read_lengths(args.lengths)}
    for name, value in defaults.items():
        if getattr(args, name) is None:
            setattr(args, name, value)


def check(args: argparse.Namespace) -> None:
    """Stop at the first flag that cannot work.

    Raises:
        UsageError: naming the flag.
    """
    for job in args.jobs:
        if bool(args.lengths) != (job in ATTENTION):
            needed = "--length" if args.lengths else "--lengths, such as --lengths 512,1024,2048"
            raise UsageError(f"--jobs {job}: takes {needed}")
    for entry in args.archs:
        check_entry(entry) if args.lengths else check_model(entry, args.jobs)
    families = {JOBS[job][0] for job in args.jobs}
    if len(families) > 1 and not args.all_encodings:
        raise UsageError(
            "--jobs {}: masked-lm, lm- and translation jobs take different models; give them "
            "apart, or with --all-encodings".format(" ".join(args.jobs))
        )
    # four symbols of a dictionary are not words; quartiles need two rounds
    for name, least in (
        ("layers", 1),
        ("vocabulary", 5),
        ("batch", 1),
        ("threads", 1),
        ("repeat", 2),
    ):
        value = getattr(args, name)
        if value is not None and value < least:
            raise UsageError(f"--{name} {value}: expected {least} or more")
    given = " ".join(map(str, args.length))
    if min(args.length) < 1:
        raise UsageError(f"--length {given}: expected numbers above 0")
    if len(args.length) > 2 and not args.lengths and args.jobs != ["masked-lm"]:
        raise UsageError(f"--length {given}: expected one or two numbers, of source and target")
    if args.device == "cuda" and not torch.cuda.is_available():
        raise UsageError("--device cuda: PyTorch finds no GPU; give --device cpu")
    if args.dtype == "float16" and args.device == "cpu":
        raise UsageError("--dtype float16: needs --device cuda; on the CPU give bfloat16")
    if args.plot and not args.lengths:
        raise UsageError(f"--plot {args.plot}: draws times by length; needs --lengths")
    if args.plot and importlib.util.find_spec("matplotlib") is None:
        raise UsageError(f"--plot {args.plot}: matplotlib is missing; run: pip install matplotlib")
    for flag, path in (("--csv", args.csv), ("--json", args.json), ("--plot", args.plot)):
        if path and not os.path.isdir(os.path.dirname(os.path.abspath(path))):
            raise UsageError(f"{flag} {path}: there is no such folder; make it first")


def check_model(entry: str, jobs: List[str]) -> None:
    """Refuse an entry of ``--archs`` that is no model, or none for *jobs*.

    Raises:
        UsageError: naming the entry.
    """
    explicit, _, words = split_entry(entry)
    name = words[0] if words else ""
    if name not in ARCH_MODEL_REGISTRY and name not in PEERS:
        raise UsageError(
            f"--archs {entry!r}: {name!r} is not an architecture of fairseq or of "
            "the plug-in; python -m fairseq_posenc list names them"
        )
    if (explicit or name in PEERS) and jobs != ["masked-lm"]:
        only = EXPLICIT if explicit else name
        raise UsageError(f"--archs {entry!r}: {only} is only for --jobs masked-lm")
    if name in PEERS and len(words) > 1:
        raise UsageError(f"--archs {entry!r}: {name} takes no flag but --vocabulary")


def settings(args: argparse.Namespace) -> Dict[str, Any]:
    """What the figures depend on, besides the flags: versions and device."""
    device = torch.device(args.device)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    return dict(
        vars(args),
        beam=BEAM,
        device_name=name,
        threads=torch.get_num_threads(),
        cores=os.cpu_count(),
        torch=torch.__version__,
        python=platform.python_version(),
    )


def table(rows: List[Dict[str, Any]]) -> str:
    """The rows as text for people."""
    width = max(len(row["model"]) for row in rows)
    head = f"{'job':<14}{'tokens':<8}{'clock':<11}{'model':<{width}}"
    head += f"{'ms':>10}{'ratio':>8}  quartiles      MiB   arithmetic (ratio)"
    lines = [head]
    for row in rows:
        memory = "-" if row["peak_mib"] is None else format(row["peak_mib"], ".0f")
        gflop, ratio = row["gflop"], row["gflop_ratio"]
        counted = "-" if gflop is None else f"{gflop:.4g} GFLOP ({ratio:.3f})"
        lines.append(
            "{job:<14}{tokens:<8}{clock:<11}{model:<{width}}{median_ms:>10.1f}"
            "{ratio:>8.3f}  {ratio_q1:.3f}-{ratio_q3:.3f}{memory:>8}   {counted}".format(
                **row, width=width, memory=memory, counted=counted
            )
        )
    return "\n".join(lines)


def write(path: str, content: bytes) -> None:
    """Write a file that is complete or not there."""
    part = path + ".part"
    try:
        with open(part, "wb") as stream:
            stream.write(content)
        os.replace(part, path)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None


def as_csv(rows: List[Dict[str, Any]]) -> str:
    """The rows with a line of names above them."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def main(argv: Optional[List[str]] = None) -> None:
    args = get_parser().parse_args(argv)
    complete(args)
    check(args)
    rows = measure(args)
    conditions = settings(args)
    result: Dict[str, Any] = {"settings": conditions, "rows": rows}
    print(json.dumps(conditions))
    if args.lengths:
        rows = result["rows"] = benchmark_lengths.per_token(rows, args.batch)
        fitted = result["exponents"] = benchmark_lengths.exponents(rows)
        print(benchmark_lengths.table(rows, fitted))
    else:
        print(table(rows))
    if args.csv:
        write(args.csv, as_csv(rows).encode())
    if args.json:
        write(args.json, (json.dumps(result, indent=2) + "\n").encode())
    if args.plot:
        write(args.plot, benchmark_lengths.draw(rows, rows[0]["clock"]))


if __name__ == "__main__":
    main()
