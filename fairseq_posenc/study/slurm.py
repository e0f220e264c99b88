"""Making runs on a Slurm cluster, through submitit: one array, which survives preemption."""

import signal
import subprocess
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.packages import import_extra
from fairseq_posenc.steps.processes import Ended, Processes
from fairseq_posenc.study.commands import Device, cores_here
from fairseq_posenc.study.results import RUNS
from fairseq_posenc.study.runs import finished_result
from fairseq_posenc.study.study import Job, Results, log_line
from fairseq_posenc.study.work import TRIES, Execute, Worker

LOGS = "slurm"  # the folder of the jobs' own logs
_LOOK_AGAIN = 20.0  # seconds between questions to the queue, and until a file is seen by all nodes
#: Signals by which Slurm tells all processes of a job that it will end, and how long it may take.
_ENDING, _GRACE = (signal.SIGTERM, signal.SIGUSR2), 600.0
_MINUTES = 24 * 60  # time of a job, if the user does not say
_TIMES_UP = 10_000  # times that a job may run out of time: a long training needs many jobs


class OnNode:
    """Makes one run on the node where the object is called."""

    def __init__(self, study: Path, gpus: int) -> None:
        self.study, self.gpus = study, gpus

    def __call__(self, job: Job) -> Dict[str, Any]:
        """Make a run, or its first steps."""
        return self._worker().make(job[0], self._device(), job[1])

    def fail(self, job: Job, error: str) -> Dict[str, Any]:
        """Note that the job of a run has died; *error* is the end of the job's output."""
        return self._worker().fail(job[0], self._device(), error)

    def _worker(self) -> Worker:
        return Worker(self.study, _patient(Processes()), log_line)

    def _device(self) -> Device:
        return Device(("0",) * self.gpus, cores_here(), visible=False)

    def checkpoint(self, job: Job) -> Any:
        """The job to submit when this one is preempted or its time is up.

        The new job makes the same run, which goes on from its last checkpoint.
        """
        submitit = import_extra("submitit", "--slurm")
        return submitit.helpers.DelayedSubmission(self, job)


def _patient(execute: Execute) -> Execute:
    """After a signal of the job has ended a command, wait for the job's end, and retry nothing."""

    def run(*args: Any) -> Ended:
        ended = execute(*args)
        if -ended.status in _ENDING:
            log_line(f"{signal.Signals(-ended.status).name}: waiting for the end of the job")
            time.sleep(_GRACE)
        return ended

    return run


def parse_settings(text: str) -> Dict[str, Any]:
    """The settings of ``--slurm``.

    >>> parse_settings("partition=gpu,timeout_min=600")
    {'partition': 'gpu', 'timeout_min': 600}

    Raises:
        UsageError: one is not KEY=VALUE.
    """
    settings: Dict[str, Any] = {}
    for entry in text.split(","):
        name, equals, value = entry.partition("=")
        if not (name.strip() and equals and value):
            raise UsageError(f"--slurm {text}: {entry!r}: expected KEY=VALUE, as partition=gpu")
        settings[name.strip()] = int(value) if value.isdecimal() else value
    return settings


def cluster(
    study: Path, text: str, at_a_time: Optional[int], gpus: int
) -> Callable[[Sequence[Job]], Results]:
    """A function that makes runs on the cluster and waits until they have ended.

    Finished runs are not submitted. A run whose job dies is submitted once more; then the run
    counts as failed, and is tried again when the study is started again.

    Args:
        study: the folder of the study, which all nodes see.
        text: settings of submitit's executor, for example ``partition=gpu,timeout_min=600``;
            ``cluster=local`` runs them on this machine.
        at_a_time: runs at a time.
        gpus: GPUs that the batch of a run is meant for. A job has as many, or ``gpus_per_node``,
            0 for the CPU.

    Raises:
        UsageError: submitit is missing, does not know a setting, or there is no Slurm here; or the
            batch cannot be shared by that many GPUs.
    """
    submitit = import_extra("submitit", f"--slurm {text}")
    settings = parse_settings(text)
    kind = str(settings.pop("cluster", "slurm"))
    asked = settings.pop("gpus_per_node", gpus)
    if asked not in range(gpus + 1) or (asked and gpus % asked):
        raise UsageError(
            f"--slurm {text}: gpus_per_node {asked}: the batch of a run is meant for {gpus} "
            f"GPU{'s' * (gpus > 1)} (the plan's key gpus); give a number that divides it, or 0"
        )
    names = {"timeout_min": _MINUTES, "gpus_per_node": asked, "name": study.name, **settings}
    known = {"partition", "account", "qos", "array_parallelism", "constraint", "time", "mem"}
    parameters = {f"slurm_{k}" if k in known else k: v for k, v in names.items()}
    if at_a_time:
        parameters["slurm_array_parallelism"] = at_a_time
    try:
        executor = submitit.AutoExecutor(
            folder=str(study / LOGS), cluster=kind, slurm_max_num_timeout=_TIMES_UP
        )
        executor.update_parameters(**parameters)
    except (AssertionError, NameError, RuntimeError, TypeError, ValueError) as error:
        raise UsageError(f"--slurm {text}: {' '.join(str(error).split())}") from error

    on_node = OnNode(study, int(asked))

    def submit(todo: Sequence[Job]) -> List[Any]:
        try:
            submitted: List[Any] = executor.map_array(on_node, list(todo))
        except RuntimeError as error:
            raise UsageError(f"--slurm {text}: cannot be submitted: {error}") from error
        log_line(f"{len(submitted)} jobs: {submitted[0].job_id} ...")
        return submitted

    def make(todo: Sequence[Job]) -> Results:
        found = [finished_result(study / RUNS / spec.name, spec) for spec, _ in todo]
        errors: Dict[int, str] = {}
        for _ in range(TRIES):
            left = [number for number, result in enumerate(found) if result is None]
            jobs = submit([todo[number] for number in left]) if left else []
            for number, job in zip(left, jobs):
                found[number], errors[number] = _outcome(job, executor.cluster == "slurm")
        return [
            on_node.fail(todo[number], errors[number]) if result is None else result
            for number, result in enumerate(found)
        ]

    return make


def _outcome(job: Any, in_queue: bool) -> Tuple[Optional[Dict[str, Any]], str]:
    """The result of a job, once it has ended, or none and the last lines of its error."""
    try:
        if not in_queue or _has_result(job):
            return job.result(), ""
        error = job.stderr() or job.stdout() or "the job ended without a word"
    except Exception as failure:  # whatever happened on the node
        error = str(failure)
    lines = [line for line in error.splitlines() if line.strip()]
    return None, "\n".join(lines[-15:])


def _has_result(job: Any) -> bool:
    """Wait until a job has succeeded or ended; False if it ended without a result or an error.

    submitit believes accounting alone.  Accounting knows no job where it is switched off, and still
    tells the last failure of a job that is being requeued.  The error that a job has written may be
    due to its requeueing, too: the signal that ends the job also ends the program that requeues it.
    Here, a job has ended when neither the queue nor accounting has the job at two looks.
    """
    missing, looked, result = 0, 0.0, job.paths.result_pickle
    while missing < 2:
        if result.exists() and job.exception() is None:
            return True
        if time.monotonic() - looked >= _LOOK_AGAIN:
            looked = time.monotonic()
            missing = 0 if _is_alive(job) else missing + 1
        time.sleep(1)
    return bool(result.exists())


def _is_alive(job: Any) -> bool:
    words = ["squeue", "--noheader", "--array", "--format=%i", "--jobs", job.job_id.split("_")[0]]
    asked = subprocess.run(words, capture_output=True, text=True)
    if asked.returncode and "Invalid job id" not in asked.stderr:  # the controller does not answer
        return True
    return job.job_id in asked.stdout.split() or not (job.state == "UNKNOWN" or job.done())
