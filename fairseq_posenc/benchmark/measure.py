"""Time, memory and operation counts, and the order in which models are run."""

import argparse
import logging
import multiprocessing
import platform
import resource
import statistics
import sys
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from typing import Any, Callable, Dict, List, Optional, Tuple

import torch

from fairseq_posenc import register
from fairseq_posenc.benchmark.attention import AttentionSubject
from fairseq_posenc.benchmark.language_model import LanguageModelSubject
from fairseq_posenc.benchmark.lengths import rounds_at
from fairseq_posenc.benchmark.masked_lm import MaskedLMSubject, explicit_attention
from fairseq_posenc.benchmark.options import BY_LENGTH, JOBS
from fairseq_posenc.benchmark.steps import SteppedSearch
from fairseq_posenc.benchmark.translation import Run, TranslationSubject
from fairseq_posenc.encodings import ENCODINGS

WARM_UP = 2  # rounds that are not counted

SUBJECTS: Dict[str, Callable[..., Any]] = {
    "translation": TranslationSubject,
    "masked_lm": MaskedLMSubject,
    "language_model": LanguageModelSubject,
    "attention": AttentionSubject,
}


def timed(run: Run, device: torch.device) -> Dict[str, float]:
    """Run once and return milliseconds by clock."""
    if device.type == "cuda":
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize(device)
        wall = time.perf_counter()
        start.record()
        run()
        end.record()
        torch.cuda.synchronize(device)
        return {"device": start.elapsed_time(end), "wall": 1e3 * (time.perf_counter() - wall)}
    wall, processor = time.perf_counter(), time.process_time()
    run()
    processor = time.process_time() - processor
    return {"processor": 1e3 * processor, "wall": 1e3 * (time.perf_counter() - wall)}


def prepare_process(args: argparse.Namespace) -> None:
    """Set the number of threads, and silence log messages of fairseq and hydra."""
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    if args.threads is not None:
        torch.set_num_threads(args.threads)


def _peak(entry: str, job: str, args: argparse.Namespace) -> float:
    register()  # a spawned process has not run the command line's set-up
    prepare_process(args)
    run = SUBJECTS[JOBS[job]](entry, args).start(job)
    for _ in range(2):  # the gradients of the first step are still allocated in the second
        run()
    if torch.device(args.device).type == "cuda":
        return torch.cuda.max_memory_allocated(args.device) / 2**20
    unit = 1 if platform.system() == "Darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20


def peak_memory(entry: str, job: str, args: argparse.Namespace) -> float:
    """Return the peak memory of one job in a fresh process, in MiB."""
    # not "spawn": Linux counts the memory of this process towards the peak of its children
    fresh = multiprocessing.get_context("forkserver")
    fresh.set_forkserver_preload([__name__])  # whose imports take longer than the job
    with ProcessPoolExecutor(1, mp_context=fresh) as process:
        return process.submit(_peak, entry, job, args).result()


def arithmetic(run: Run) -> Optional[float]:
    """Count the floating-point operations of the matrix products of one run, in 10⁹.

    Fused attention is decomposed, so that every product is counted exactly once.

    Returns:
        the count, or None where PyTorch cannot count (before 2.3).
    """
    try:
        from torch.utils.flop_counter import FlopCounterMode

        with FlopCounterMode(display=False) as counter, explicit_attention():
            run()
    except ImportError:
        return None
    return counter.get_total_flops() / 1e9


def compare(times: List[List[float]]) -> List[Dict[str, float]]:
    """Summarise the times of every model, by round; the first model is the baseline.

    Returns:
        for each model the median time, and the median and quartiles of its ratio to the baseline
        in the same round.
    """
    summary = []
    for mine in times:
        ratios = [one / base for one, base in zip(mine, times[0])]
        low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
        summary.append(
            {
                "median_ms": statistics.median(mine),
                "ratio": middle,
                "ratio_q1": low,
                "ratio_q3": high,
            }
        )
    return summary


def measure(args: argparse.Namespace) -> List[Dict[str, Any]]:
    """Run all jobs; returns one row per job, length, clock and model."""
    prepare_process(args)
    blocks = []
    for kind, jobs, archs in kinds_of(args):
        lengths = [[n] for n in args.length] if kind in BY_LENGTH else [args.length]
        for length in lengths:
            own = {"jobs": jobs, "archs": archs, "length": length, "position": None}
            if kind == "attention":
                own["repeat"] = rounds_at(args.repeat, length[0], min(args.length))
            for position in args.positions or [None]:
                if position is not None:
                    last = position + WARM_UP + args.repeat
                    own.update(position=position, length=[length[0], last], skip_memory=True)
                blocks.append(argparse.Namespace(**{**vars(args), **own}))
    return [row for block in blocks for row in measure_length(block)]


def kinds_of(args: argparse.Namespace) -> List[Tuple[str, List[str], List[str]]]:
    """Every kind of model that ``--jobs`` needs, with its jobs and its entries."""
    return [
        (
            kind,
            [job for job in JOBS if job in args.jobs and JOBS[job] == kind],
            every_encoding(kind) if args.all_encodings else args.archs,
        )
        for kind in dict.fromkeys(JOBS[job] for job in args.jobs)
    ]


def every_encoding(kind: str) -> List[str]:
    """Entries for one kind of model: stock fairseq, and the plug-in with each of its encodings."""
    subject: Any = SUBJECTS[kind]
    names = [e.name for e in ENCODINGS.values() if subject.decoder_only or not e.causal_only]
    ours = [f"{subject.generic} --position-encoding {name}" for name in names]
    return [subject.stock, *ours]


def _started(subject: Any, job: str, position: Optional[int]) -> Run:
    """The function to time: *job*, or one token of it at *position*."""
    run: Run = subject.start(job)
    return run if position is None else SteppedSearch(run, subject.model.decoder, position)


def measure_length(args: argparse.Namespace) -> List[Dict[str, Any]]:
    """Run all jobs on sentences of one length; returns one row per job, clock and model."""
    device = torch.device(args.device)
    kind = JOBS[args.jobs[0]]
    subjects = [
        SUBJECTS[kind](entry, args) for entry in args.archs
    ]  # before any measurement, so that errors show at once
    memory = {
        (job, entry): None if args.skip_memory else peak_memory(entry, job, args)
        for job in args.jobs
        for entry in args.archs
    }
    rows = []
    for job in args.jobs:
        runs = [_started(subject, job, args.position) for subject in subjects]
        # counting decomposes attention, whose matrices may not fit into memory
        whole = kind != "attention" and args.position is None
        counts = [arithmetic(run) if whole else None for run in runs]
        rounds: List[List[Dict[str, float]]] = []
        for number in range(WARM_UP + args.repeat):
            rounds.append([timed(run, device) for run in runs])
            print(
                f"\r{job}: round {number + 1} of {WARM_UP + args.repeat}",
                end="",
                file=sys.stderr,
                flush=True,
            )
        print(file=sys.stderr)
        for run in runs:
            if isinstance(run, SteppedSearch):
                run.close()
        del rounds[:WARM_UP]
        for clock in rounds[0][0]:
            times = [[one[i][clock] for one in rounds] for i in range(len(runs))]
            for subject, summary, gflop in zip(subjects, compare(times), counts):
                size = sum(p.numel() for p in subject.model.parameters())
                rows.append(
                    dict(
                        job=job,
                        tokens=" ".join(
                            map(str, [args.position] if args.position else args.length)
                        ),
                        clock=clock,
                        model=subject.entry,
                        **summary,
                        peak_mib=memory[job, subject.entry],
                        gflop=gflop,
                        gflop_ratio=gflop / counts[0] if gflop and counts[0] else None,
                        parameters=size,
                    )
                )
    return rows
