"""Measure time and memory of whole runs or single tokens; models take turns in rounds."""

import argparse
import logging
import math
import multiprocessing
import platform
import resource
import statistics
import threading
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from typing import Any, Dict, List, Type

import numpy as np
import torch
from torch import nn

from subjects import Run, Subject

Row = Dict[str, Any]
WARM_UP = 2  # number of first rounds that do not count


def prepare_process(args: argparse.Namespace) -> None:
    """Set the number of threads, and silence log messages of fairseq and hydra."""
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    if args.threads is not None:
        torch.set_num_threads(args.threads)


def timed(run: Run, device: torch.device) -> Dict[str, float]:
    """Run once, and return milliseconds keyed by clock."""
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


def compare(times: List[List[float]]) -> List[Dict[str, float]]:
    """Summarise times, one list over the rounds for each model; the first model is the baseline.

    Returns:
        for each model the median time, and the median and quartiles of its ratio to the baseline
        in the same round.
    """
    summary = []
    for mine in times:
        ratios = [one / base for one, base in zip(mine, times[0])]
        low, middle, high = np.quantile(ratios, (0.25, 0.5, 0.75)).tolist()
        quartiles = {"ratio": middle, "ratio_q1": low, "ratio_q3": high}
        summary.append({"median_ms": statistics.median(mine), **quartiles})
    return summary


def in_rounds(subjects: List[Subject], deadline: float = math.inf) -> List[Row]:
    """Time the models in turn, for ``--repeat`` rounds or until *deadline* (time.monotonic()).

    Returns:
        a row for each clock and model; the first model is the baseline.
    """
    args = subjects[0].args
    length = " ".join(map(str, [args.position] if args.position else args.length))
    memory = [peak_memory(subject) if args.memory else None for subject in subjects]
    runs = [subject.run for subject in subjects]
    stepped: List[SteppedSearch] = []
    if args.position is not None:
        decoders = [subject.model.decoder for subject in subjects]
        stepped = [SteppedSearch(*pair, args.position) for pair in zip(runs, decoders)]
        runs = [*stepped]
    rounds: List[List[Dict[str, float]]] = []
    while len(rounds) < WARM_UP + args.repeat and time.monotonic() < deadline:
        rounds.append([timed(run, torch.device(args.device)) for run in runs])
    for search in stepped:
        search.close()
    rounds, rows = rounds[WARM_UP:], []
    for clock in rounds[0][0] if rounds else ():
        times = [[one[i][clock] for one in rounds] for i in range(len(runs))]
        for subject, summary, peak in zip(subjects, compare(times), memory):
            row = {"job": subject.job, "length": length, "clock": clock}
            row.update(model=subject.entry, rounds=len(rounds), **summary, peak_mib=peak)
            rows.append(row)
    return rows


def peak_memory(subject: Subject) -> float:
    """The job's peak memory in MiB: of its tensors on a GPU, or of a fresh process on a CPU."""
    if torch.device(subject.args.device).type == "cuda":
        subject.model.zero_grad(set_to_none=True)
        subject.run()  # the second step starts with the first step's gradients allocated
        grads = [p.grad for p in subject.model.parameters() if p.grad is not None]
        own = sum(x.numel() * x.element_size() for x in [*subject.model.parameters(), *grads])
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        subject.run()
        return (torch.cuda.max_memory_allocated() - before + own) / 2**20
    # not "spawn", with which Linux counts this process's memory towards its children's peak
    fresh = multiprocessing.get_context("forkserver")
    fresh.set_forkserver_preload([__name__])  # importing this module takes longer than the job
    with ProcessPoolExecutor(1, mp_context=fresh) as process:
        given = (type(subject), subject.entry, subject.job, subject.args)
        return process.submit(_peak_of_process, *given).result()


def _peak_of_process(kind: Type[Subject], entry: str, job: str, args: argparse.Namespace) -> float:
    prepare_process(args)
    run = kind(entry, job, args).run
    for _ in range(2):
        run()
    unit = 1 if platform.system() == "Darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20


class SteppedSearch:
    """Runs a beam search in a thread that pauses before each token from *position* on.

    A call computes one token: the decoder's step, the search's choice of hypotheses, and the
    reordering of the cache for the next token.
    """

    def __init__(self, run: Run, decoder: nn.Module, position: int) -> None:
        self._run, self._decoder, self._position = run, decoder, position
        self._go, self._stopped = threading.Semaphore(0), threading.Semaphore(0)
        self._closed = self._ended = False
        self._error: Exception = RuntimeError("the search is over")
        self._forward, self._threads = decoder.forward, torch.get_num_threads()
        decoder.forward = self._step  # fairseq calls this attribute
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
        torch.set_num_threads(self._threads)  # PyTorch sets this number for each thread
        try:
            self._run()
        except Exception as error:  # raised again by the call that asked for the token
            self._error = error
        self._ended = True
        self._stopped.release()

    def _step(self, tokens: Any, *args: Any, **kwargs: Any) -> Any:
        if tokens.size(1) >= self._position:
            self._stopped.release()
            self._go.acquire()
            if self._closed:
                raise RuntimeError("closed")
        return self._forward(tokens, *args, **kwargs)

    def _wait(self) -> None:
        self._stopped.acquire()
        if self._ended:
            raise self._error
