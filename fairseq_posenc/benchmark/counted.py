"""``benchmark --count``: what each model makes a GPU do, as a table."""

import argparse
from typing import Any, Dict, List

from fairseq_posenc.benchmark.counting import Counts, count
from fairseq_posenc.benchmark.fused import GPUS
from fairseq_posenc.benchmark.measure import SUBJECTS, kinds_of, prepare_process
from fairseq_posenc.benchmark.options import GENERATION, JOBS

Row = Dict[str, Any]


def counted(args: argparse.Namespace) -> List[Row]:
    """Count every job of every model; returns one row per job and model."""
    prepare_process(args)
    rows: List[Row] = []
    for _, jobs, entries in kinds_of(args):
        for job in jobs:
            of_job = [_row(job, entry, args) for entry in entries]
            for row in of_job:
                for name in ("kernels", "saved_mib"):
                    base = of_job[0][name]
                    row[f"{name}_ratio"] = row[name] / base if base else None
            rows += of_job
    return rows


def _row(job: str, entry: str, args: argparse.Namespace) -> Row:
    """The figures of a training step, or of one generated token."""
    found, steps = [_count(job, entry, args, args.length)], 1
    if job in GENERATION:  # the difference between a long and a short text
        longest = max(args.length[-1], 2)
        short = longest // 2
        found = [_count(job, entry, args, [*args.length[:-1], n]) for n in (longest, short)]
        steps = longest - short
    every: Dict[str, List[float]] = {
        "kernels": [counts.total for counts in found],
        "waits": [sum(counts.waits.values()) for counts in found],
        "copies": [counts.copies for counts in found],
        "saved_mib": [counts.saved / 2**20 for counts in found],
    }
    figures = {
        name: (values[0] - (values[1] if len(values) > 1 else 0)) / steps
        for name, values in every.items()
    }
    kernels = {name: dict(found[0].kernels_of_attention(number)) for number, name in GPUS.items()}
    return dict(job=job, model=entry, **figures, attention=kernels)


def _count(job: str, entry: str, args: argparse.Namespace, length: List[int]) -> Counts:
    own = argparse.Namespace(**{**vars(args), "jobs": [job], "length": length})
    subject = SUBJECTS[JOBS[job]](entry, own)
    run = subject.start(job)
    run()  # constants are made
    return count(run, subject.model.parameters())


def count_table(rows: List[Row]) -> str:
    """The rows as plain text, each followed by the attention kernels of each GPU."""
    width = max(len(row["model"]) for row in rows)
    head = f"{'job':<14}{'model':<{width}}{'waits':>8}{'copies':>8}{'kernels':>9}{'ratio':>8}"
    lines = [f"{head}{'saved MiB':>11}{'ratio':>8}"]
    for row in rows:
        ratios = [row["kernels_ratio"], row["saved_mib_ratio"]]
        shown = ["-" if ratio is None else format(ratio, ".3f") for ratio in ratios]
        lines.append(
            "{job:<14}{model:<{width}}{waits:>8g}{copies:>8g}{kernels:>9g}{0:>8}{saved_mib:>11.1f}"
            "{1:>8}".format(*shown, **row, width=width)
        )
        for gpu, kernels in row["attention"].items():
            words = ", ".join(f"{number} x {name}" for name, number in kernels.items())
            lines.append(f"{'':<14}{gpu}: {words or 'no attention that could be fused'}")
    return "\n".join(lines)
