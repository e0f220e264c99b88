"""Time, memory and operation counts of whole runs or single tokens, and the order of the runs."""

import argparse
import logging
import multiprocessing
import platform
import resource
import statistics
import sys
import threading
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from typing import Any, Dict, List, Optional, Tuple, Type

import torch
from fairseq.utils import import_user_module
from torch import nn

from fairseq_posenc import register
from fairseq_posenc.benchmark.layers import AttentionSubject
from fairseq_posenc.benchmark.models import (
    LanguageModelSubject,
    MaskedLMSubject,
    Run,
    Subject,
    TranslationSubject,
    explicit_attention,
)
from fairseq_posenc.benchmark.options import BY_LENGTH, JOBS
from fairseq_posenc.encodings import ENCODINGS

Row = Dict[str, Any]

WARM_UP = 2  # rounds that are not counted
LEAST_ROUNDS = 3  # rounds of attention at the longest lengths

#: The class of every kind in :data:`JOBS`.
SUBJECTS: Dict[str, Type[Subject]] = {
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


def _peak(kind: Type[Subject], entry: str, job: str, args: argparse.Namespace) -> float:
    register()  # the command line did so in another process
    import_user_module(args)
    prepare_process(args)
    run = kind(entry, args).start(job)
    for _ in range(2):  # the gradients of the first step are still allocated in the second
        run()
    if torch.device(args.device).type == "cuda":
        return torch.cuda.max_memory_allocated(args.device) / 2**20
    unit = 1 if platform.system() == "Darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20


def peak_memory(entry: str, job: str, args: argparse.Namespace) -> float:
    """The peak memory of one job in a fresh process, in MiB."""
    # not "spawn": Linux counts the memory of this process towards the peak of its children
    fresh = multiprocessing.get_context("forkserver")
    fresh.set_forkserver_preload([__name__])  # importing this module takes longer than the job
    args = argparse.Namespace(**{**vars(args), "jobs": [job]})  # no layer of another job is built
    with ProcessPoolExecutor(1, mp_context=fresh) as process:
        return process.submit(_peak, SUBJECTS[JOBS[job]], entry, job, args).result()


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
        quartiles = {"ratio": middle, "ratio_q1": low, "ratio_q3": high}
        summary.append({"median_ms": statistics.median(mine), **quartiles})
    return summary


def measure(args: argparse.Namespace) -> List[Row]:
    """Run all jobs; returns one row per job, length, clock and model."""
    prepare_process(args)
    rows: List[Row] = []
    for kind, jobs, archs in kinds_of(args):
        for length in [[n] for n in args.length] if kind in BY_LENGTH else [args.length]:
            own = {"jobs": jobs, "archs": archs, "length": length, "position": None}
            if kind == "attention":
                own["repeat"] = rounds_at(args.repeat, length[0], min(args.length))
            for position in args.positions or [None]:
                if position is not None:
                    last = position + WARM_UP + args.repeat
                    own.update(position=position, length=[length[0], last], skip_memory=True)
                rows += measure_length(argparse.Namespace(**{**vars(args), **own}))
    return rows


def rounds_at(repeat: int, length: int, shortest: int) -> int:
    """The number of rounds at one length: fewer at longer lengths, at least min(3, *repeat*).

    Args:
        repeat: rounds at the shortest length.
        length: in tokens.
        shortest: in tokens.
    """
    return max(repeat * shortest // length, min(repeat, LEAST_ROUNDS))


def kinds_of(args: argparse.Namespace) -> List[Tuple[str, List[str], List[str]]]:
    """Every kind of model that ``--jobs`` needs, with its jobs and its entries."""
    return [
        (
            kind,
            [job for job in JOBS if job in args.jobs and JOBS[job] == kind],
            every_encoding(SUBJECTS[kind]) if args.all_encodings else args.archs,
        )
        for kind in dict.fromkeys(JOBS[job] for job in args.jobs)
    ]


def every_encoding(kind: Type[Subject]) -> List[str]:
    """Entries for one kind of model: stock fairseq, and the plug-in with each of its encodings."""
    names = [e.name for e in ENCODINGS.values() if kind.decoder_only or not e.causal_only]
    return [kind.stock, *(f"{kind.generic} --position-encoding {name}" for name in names)]


def measure_length(args: argparse.Namespace) -> List[Row]:
    """Run all jobs on sentences of one length; returns one row per job, clock and model."""
    kind = SUBJECTS[JOBS[args.jobs[0]]]
    # all are built before any measurement, so that errors show at once
    subjects = [kind(entry, args) for entry in args.archs]
    memory = {
        (job, entry): None if args.skip_memory else peak_memory(entry, job, args)
        for job in args.jobs
        for entry in args.archs
    }
    rows = []
    for job in args.jobs:
        counts, rounds = run_rounds(subjects, job, args)
        for clock in rounds[0][0]:
            times = [[one[i][clock] for one in rounds] for i in range(len(subjects))]
            for subject, summary, gflop in zip(subjects, compare(times), counts):
                row = {
                    "job": job,
                    "tokens": " ".join(map(str, [args.position] if args.position else args.length)),
                    "clock": clock,
                    "model": subject.entry,
                    **summary,
                    "peak_mib": memory[job, subject.entry],
                    "gflop": gflop,
                    "gflop_ratio": gflop / counts[0] if gflop and counts[0] else None,
                    "parameters": sum(p.numel() for p in subject.model.parameters()),
                }
                rows.append(row)
    return rows


def run_rounds(
    subjects: List[Subject], job: str, args: argparse.Namespace
) -> Tuple[List[Optional[float]], List[List[Dict[str, float]]]]:
    """Run one job of all models in turn.

    Returns:
        for each model its operation count, or None; for each round and model the times by clock.
    """
    runs = [subject.start(job) for subject in subjects]
    # counting decomposes attention; the matrices of a long text may not fit into memory
    whole = not isinstance(subjects[0], AttentionSubject) and args.position is None
    counts = [arithmetic(run) if whole else None for run in runs]
    searches: List[SteppedSearch] = []
    if args.position is not None:
        models: List[Any] = [subject.model for subject in subjects]
        searches = [
            SteppedSearch(run, model.decoder, args.position) for run, model in zip(runs, models)
        ]
        runs = [*searches]
    rounds, total = [], WARM_UP + args.repeat
    for number in range(1, total + 1):
        rounds.append([timed(run, torch.device(args.device)) for run in runs])
        print(f"\r{job}: round {number} of {total}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    for search in searches:
        search.close()
    return counts, rounds[WARM_UP:]


class _Closed(Exception):
    """Ends a search that is not needed any more."""


class SteppedSearch:
    """A search in a thread of its own, which from a position on waits before each token.

    A call computes one token: the decoder's step, the search's choice of hypotheses, and the
    reordering of the cache for the next token.

    Args:
        decoder: its decoder, called once a token.
        position: the number of tokens that the first step attends to.
    """

    def __init__(self, run: Run, decoder: nn.Module, position: int) -> None:
        self._run, self._decoder, self._position = run, decoder, position
        self._go, self._stopped = threading.Semaphore(0), threading.Semaphore(0)
        self._errors: List[Exception] = []
        self._closed = self._ended = False
        self._forward, self._threads = decoder.forward, torch.get_num_threads()
        decoder.forward = self._step  # fairseq calls this
        self._thread = threading.Thread(target=self._search, daemon=True)
        self._thread.start()
        self._wait()

    def __call__(self) -> None:
        """Compute one token."""
        self._go.release()
        self._wait()

    def close(self) -> None:
        """End the search."""
        self._closed = True
        self._go.release()
        self._thread.join()
        del self._decoder.forward

    def _search(self) -> None:
        torch.set_num_threads(self._threads)  # PyTorch keeps this number for each thread
        try:
            self._run()
        except _Closed:
            pass
        except Exception as error:  # raised again where the token was asked for
            self._errors.append(error)
        self._ended = True
        self._stopped.release()

    def _step(self, tokens: Any, *args: Any, **kwargs: Any) -> Any:
        if tokens.size(1) >= self._position:
            self._stopped.release()
            self._go.acquire()
            if self._closed:
                raise _Closed
        return self._forward(tokens, *args, **kwargs)

    def _wait(self) -> None:
        self._stopped.acquire()
        for error in self._errors:
            raise error
        if self._ended:
            raise RuntimeError("the search is over")
