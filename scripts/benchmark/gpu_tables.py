"""Make the tables of a GPU, the most valuable first, each with a time limit; see gpu_tables.sh.

    python scripts/benchmark/gpu_tables.py OUT [TABLE ...] [--seconds 500] [--cpu]

OUT/rows.jsonl gets the rows of each finished table: times as in time_models.py or, for a model that
failed, the error; the printed table leaves this model out.

These criteria were set before any table was made.  A feature is kept if
- --cuda-graphs: generation of roformer_base takes at most 0.7 of stock's time;
- --attention-backend flex: at 2,048 tokens it is faster than the dense bias, or halves the memory;
- --compile-layers: a training step takes at most 0.95 of its time without the flag;
- joint projections: a training step or a token takes at most 0.98 of its time with no-joint;
- sources read once for all hypotheses: generation takes at most 0.95 of its time with no-sharing;
- chunked linear attention in half precision: at most 1.3 of flash-linear-attention's time.
flash-linear-attention becomes the causal kernel on GPUs if it takes at most 1 / 1.5 of our kernel's
time, with the same outputs.
"""

import argparse
import contextlib
import gc
import json
import shlex
import signal
import sys
import time
from pathlib import Path
from typing import Any, Iterator, List, NamedTuple

import torch

from rounds import Row, in_rounds, prepare_process
from subjects import Subject
from time_models import JOBS, cases, get_parser, settings, table


class Table(NamedTuple):
    """Flags and entries for time_models.py, and the time limit in seconds per job and length."""

    flags: str
    archs: List[str]
    limit: int
    v100: bool = False  # run without the kernels that a V100 lacks


BY = "posenc_transformer --position-encoding"
T5 = "posenc_masked_lm --position-encoding t5 --attention-dropout 0"
RECORDED = [f"{name}_base" for name in ("t5bias", "tupe", "shaw", "gau", "performer")]
FIRST = ["transformer", "transformer", f"{BY} learned", "roformer_base"]
GENERATED = [*FIRST, "roformer_base --cuda-graphs", "no-sharing roformer_base"]
GENERATED += ["no-joint roformer_base"]
GENERATED += [f"{name}{flag}" for name in RECORDED for flag in ("", " --cuda-graphs")]
TRAINED = [*FIRST, "t5bias_base", "alibi_base", "tupe_base", "gau_base"]
TRAINED += ["shaw_base", "performer_base", "transformer_xl_base", "deberta_base"]
TRAINED += ["roformer_v2_base", f"{BY} shaw", f"{BY} tupe+t5"]
MASKED = ["roberta_base", "roberta_base", "roformer_masked_lm_base", "hf-roformer"]
MASKED += ["tupe_a_masked_lm_base", "tupe_r_masked_lm_base"]
MASKED += ["roformer_v2_masked_lm_base", "gau_masked_lm_base --encoder-layers 24"]
GENERATION = "--jobs generation --batch 32 --dtype float16"
TRAINING = "--jobs training --length 64"
LAYERS = "--batch 4 --length 1024 4096 16384 --dtype bfloat16 --repeat 7"
BERT = "--jobs masked-lm --size bert-base --dtype bfloat16 --repeat 7"
TABLES = {
    "generation": Table(f"{GENERATION} --length 32 --repeat 7", GENERATED, 100),
    "training-float16": Table(f"{TRAINING} --batch 64 --dtype float16", TRAINED, 55),
    "training-bfloat16": Table(f"{TRAINING} --batch 64 --dtype bfloat16", TRAINED, 55),
    "training-16k": Table(f"{TRAINING} --batch 256 --dtype bfloat16", TRAINED[:9], 50),
    "generation-v100": Table(f"{GENERATION} --length 32 --repeat 5", GENERATED[:7], 45, True),
    "training-v100": Table(f"{TRAINING} --batch 64 --dtype float16", TRAINED[:7], 40, True),
    "flex": Table(
        f"{BERT} --layers 2 --batch 4 --length 512 2048 8192",
        ["roberta_base --attention-dropout 0", T5, f"{T5} --attention-backend flex"],
        40,
    ),
    "masked-lm": Table(
        f"{BERT} --layers 12 --vocabulary 32678 --batch 32 --length 512", MASKED, 70
    ),
    "attention": Table(
        f"--jobs attention causal-attention {LAYERS}",
        ["softmax", "elu", "favor", "local --local-window 256", "bigbird"],
        20,
    ),
    "linear": Table(
        f"--jobs causal-attention {LAYERS}",
        ["elu --position-encoding none"] * 2 + ["flash-linear-attention"],
        20,
    ),
    "generation-long": Table(f"{GENERATION} --length 128 --repeat 3", GENERATED[1:6], 60),
    "compiled": Table(
        f"{TRAINING} --batch 64 --dtype bfloat16",
        ["roformer_base", "roformer_base", "roformer_base --compile-layers"],
        90,
    ),
}
TINY = "--layers 1 --size tiny --vocabulary 99 --batch 2 --repeat 2 --device cpu --dtype float32"


@contextlib.contextmanager
def as_on_v100() -> Iterator[None]:
    """Context without the attention kernels and the TF32 arithmetic that a V100 lacks."""
    cuda, flags = torch.backends.cuda, ("enable_flash_sdp", "enable_cudnn_sdp")
    before = cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    for name in flags:
        getattr(cuda, name)(False)
    yield
    cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before
    for name in flags:
        getattr(cuda, name)(True)


def out_of_time(*_: Any) -> None:
    """Stop a table at its time limit; the handler of the alarm signal."""
    raise TimeoutError("the time limit of the table is over")


def rows_of(case: argparse.Namespace, limit: float) -> List[Row]:
    """The rows of one job and length; models that fail or have no time left get an error."""
    start, rows, subjects = time.monotonic(), [], []
    about = {"job": case.job, "length": str(case.length[0])}
    signal.alarm(int(limit))
    try:
        for entry in case.archs:
            try:
                if time.monotonic() > start + 0.6 * limit:
                    raise TimeoutError("left out: other models used up the table's time")
                subject: Subject = JOBS[case.job](entry, case.job, case)
                subject.run()
                subjects.append(subject)
            except (Exception, SystemExit) as error:
                reason = f"{type(error).__name__}: {str(error)[:300]}"
                rows.append({**about, "model": entry, "error": reason})
        if subjects:
            rows += in_rounds(subjects, start + 0.9 * limit)
    except Exception as error:
        rows.append({**about, "error": repr(error)[:300]})
    finally:
        signal.alarm(0)
    return rows


def main() -> None:
    """Make the tables until the time is used up."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=", ".join(TABLES))
    parser.add_argument("--seconds", type=float, default=500, help="time for all tables (500)")
    parser.add_argument("--cpu", action="store_true", help="a trial: tiny models on a CPU")
    given = parser.parse_args()
    unknown = set(given.tables) - set(TABLES)
    if unknown:
        parser.error(f"{min(unknown)}: no such table; known: {', '.join(TABLES)}")
    ends = time.monotonic() + given.seconds
    signal.signal(signal.SIGALRM, out_of_time)
    given.out.mkdir(parents=True, exist_ok=True)
    with open(given.out / "rows.jsonl", "a", encoding="utf-8") as stream:
        for name in given.tables or TABLES:
            made = TABLES[name]
            words = shlex.split(f"{made.flags} --device cuda --memory")
            args = get_parser().parse_args([*words, "--archs", *made.archs])
            if given.cpu:
                get_parser().parse_args(shlex.split(TINY), args)
                args.memory, args.length = False, sorted({min(n, 16) for n in args.length})
            prepare_process(args)
            print(json.dumps({"table": name, **settings(args)}), file=stream)
            for case in cases(args):
                left = ends - time.monotonic()
                left = left if given.cpu else min(made.limit, left)
                if left < 15:
                    print(f"{name}, {case.job} {case.length}: no time left", flush=True)
                    continue
                with as_on_v100() if made.v100 else contextlib.nullcontext():
                    rows = rows_of(case, left)
                for row in rows:
                    print(json.dumps({"table": name, **row}), file=stream, flush=True)
                shown = [row for row in rows if row.get("clock") in ("device", "processor")]
                print(f"\n{name}\n{table(shown)}")
                for row in rows:
                    if "error" in row:
                        print(f"{row.get('model', 'all')}: {row['error']}", flush=True)
                gc.collect()
                if not given.cpu:
                    torch.cuda.empty_cache()


if __name__ == "__main__":
    sys.exit(main())
