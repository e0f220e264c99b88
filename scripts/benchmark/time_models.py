#!/usr/bin/env python3
"""Time models of fairseq, the plug-in and other libraries against each other.

    python scripts/benchmark/time_models.py --jobs training generation \
        --archs transformer roformer_base "posenc_transformer --position-encoding learned"
    python scripts/benchmark/time_models.py --jobs attention causal-attention --batch 1 \
        --length 512 1024 --archs softmax elu "local --local-window 256" x-transformers

The first of --archs is the baseline.  Every round runs every model once, and a ratio compares runs
of one round, so a slow phase of the machine affects all models.  The table has medians of all
rounds, and the quartiles of the ratios.  Jobs:

training, masked-lm, lm-training: forward and backward pass of the loss, with dropout, without
optimiser; generation, lm-generation: beam search of exactly --length tokens (language models get
half of them as prompts); attention, causal-attention: forward and backward pass of one layer of an
encoder or decoder, with its projections; here --archs are values of --attention, or peers.

Words before an entry: "explicit" (attention matrices are computed and stored), "no-joint"
(projections are separate), "no-sharing" (a source is read once for each hypothesis).
Clocks: wall; processor (all threads, on a CPU); device (CUDA events).  Memory: the peak; on a CPU,
the peak of a whole process with Python and PyTorch.
"""

import argparse
import json
import platform
import sys
from typing import Any, Dict, List, Optional, Sequence, Tuple, Type

import torch

from peers import AttentionOrPeer, MaskedLMOrPeer
from rounds import WARM_UP, Row, in_rounds, prepare_process
from subjects import SIZES, LanguageModelSubject, Subject, TranslationSubject

JOBS: Dict[str, Type[Subject]] = {
    "training": TranslationSubject,
    "generation": TranslationSubject,
    "masked-lm": MaskedLMOrPeer,
    "lm-training": LanguageModelSubject,
    "lm-generation": LanguageModelSubject,
    "attention": AttentionOrPeer,
    "causal-attention": AttentionOrPeer,
}
COLUMNS = (
    *(("job", "job", ""), ("length", "length", ""), ("clock", "clock", ""), ("model", "model", "")),
    *(("ms", "median_ms", ".2f"), ("ratio", "ratio", ".3f")),
    *(("quartiles", "ratio_q1", ".3f"), ("", "ratio_q3", ".3f"), ("MiB", "peak_mib", ".0f")),
)


def get_parser() -> argparse.ArgumentParser:
    """The parser of the flags, which ``counting.py`` also uses."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--jobs", nargs="+", choices=list(JOBS), default=["training", "generation"], metavar="JOB")
    entries = ["transformer", "roformer_base"]
    add("--archs", nargs="+", default=entries, metavar="'[WORD] ARCH [FLAGS]'")
    add("--size", choices=list(SIZES), default="base", help="base: 512 channels, 8 heads")
    add("--layers", type=int, default=6, help="layers of each encoder and decoder (6)")
    add("--vocabulary", type=int, default=10000, help="symbols of the dictionary (10000)")
    add("--batch", type=int, default=16, help="sentences per batch (16)")
    help = "length of source and target; masked-lm and attention make a table per length (32)"
    add("--length", type=int, nargs="+", default=[32], help=help)
    help = "instead of whole texts, time the generation of a token after P other tokens"
    add("--positions", type=int, nargs="+", default=[None], metavar="P", help=help)
    add("--repeat", type=int, default=11, help=f"rounds (11), after {WARM_UP} that do not count")
    add("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    add("--dtype", choices=("float32", "float16", "bfloat16"), default="float32")
    add("--threads", type=int, help="threads of PyTorch (its default)")
    add("--seed", type=int, default=1, help="seed of parameters and sentences (1)")
    add("--memory", action="store_true", help="also measure memory")
    add("--json", metavar="FILE", help="also write the rows and the settings to FILE")
    return parser


def table(rows: Sequence[Row], columns: Sequence[Tuple[str, str, str]] = COLUMNS) -> str:
    """Rows as plain text; *columns* are (title, key, format); empty columns are left out."""
    columns = [c for c in columns if any(row[c[1]] is not None for row in rows)]
    lines = [[title for title, _, _ in columns]]
    for row in rows:
        values = [(row[key], form) for _, key, form in columns]
        lines.append(["-" if value is None else format(value, form) for value, form in values])
    widths = [max(map(len, cells)) for cells in zip(*lines)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def cases(args: argparse.Namespace) -> List[argparse.Namespace]:
    """The settings of each table: one job, one length, and one of ``--positions``."""
    found = []
    for job in args.jobs:
        lengths = [[n] for n in args.length] if JOBS[job].by_length else [args.length]
        for length in lengths:
            for position in args.positions:
                if position is not None:
                    length = [length[0], position + WARM_UP + args.repeat]
                own = {"job": job, "length": length, "position": position}
                found.append(argparse.Namespace(**{**vars(args), **own}))
    return found


def measure(args: argparse.Namespace) -> List[Row]:
    """Time all jobs, and return the rows of all tables."""
    prepare_process(args)
    rows: List[Row] = []
    for case in cases(args):
        rows += in_rounds([JOBS[case.job](entry, case.job, case) for entry in case.archs])
        print(f"{case.job}, {case.position or case.length}: done", file=sys.stderr)
    return rows


def settings(args: argparse.Namespace) -> Dict[str, Any]:
    """The flags, the versions and the device, on which the times depend."""
    gpu = args.device == "cuda"
    name = torch.cuda.get_device_name() if gpu else platform.machine()
    versions = {"torch": torch.__version__, "python": platform.python_version()}
    return {**vars(args), **versions, "device_name": name, "threads": torch.get_num_threads()}


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Measure, and print the table."""
    parser = get_parser()
    args = parser.parse_args(argv)
    if len({JOBS[job] for job in args.jobs}) > 1:
        parser.error(f"--jobs {' '.join(args.jobs)}: need different models; give one at a time")
    rows = measure(args)
    result = {"settings": settings(args), "rows": rows}
    print(json.dumps(result["settings"]))
    print(table(rows))
    if args.json:
        with open(args.json, "w", encoding="utf-8") as stream:
            json.dump(result, stream, indent=2)


if __name__ == "__main__":
    main()
