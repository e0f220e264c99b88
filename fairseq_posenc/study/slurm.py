"""Making runs on a Slurm cluster, through submitit: one array, which survives preemption."""

from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence

from fairseq_posenc.errors import UsageError
from fairseq_posenc.extras import import_extra
from fairseq_posenc.study.processes import Device, Processes
from fairseq_posenc.study.results import FAILED
from fairseq_posenc.study.study import Job, Results, cores_here, log_line
from fairseq_posenc.study.work import Worker

LOGS = "slurm"  # the folder of the jobs' own logs
_MINUTES = 24 * 60  # of a job, if the user does not say
_NOTHING_ELSE = "cluster"  # the only setting that is not one of the executor's parameters


class OnNode:
    """Makes one run on the node where it is called.

    Args:
        study: the folder of the study.
        gpus: GPUs of the job.
    """

    def __init__(self, study: Path, gpus: int) -> None:
        self.study, self.gpus = study, gpus

    def __call__(self, job: Job) -> Dict[str, Any]:
        """Make a run, or a part of it."""
        device = Device(("0",) * self.gpus, cores_here(), visible=False)
        return Worker(self.study, Processes(), log_line).make(job[0], device, job[1])

    def checkpoint(self, job: Job) -> Any:
        """What to submit again when the job is preempted or its time is up: the same.

        The run goes on from its last checkpoint.
        """
        submitit = import_extra("submitit", "--slurm")
        return submitit.helpers.DelayedSubmission(self, job)


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
    study: Path, text: str, jobs: Optional[int], gpus: int
) -> Callable[[Sequence[Job]], Results]:
    """A function that makes runs on the cluster and waits for them.

    Args:
        study: the folder of the study, which all nodes see.
        text: settings of submitit's executor, for example ``partition=gpu,timeout_min=600``;
            ``cluster=local`` runs them on this machine.
        jobs: runs at a time.
        gpus: GPUs of a run; 0 for the CPU, with ``gpus_per_node=0``.

    Raises:
        UsageError: submitit is missing, or does not know a setting.
    """
    submitit = import_extra("submitit", f"--slurm {text}")
    settings = parse_settings(text)
    kind = settings.pop(_NOTHING_ELSE, None)
    gpus = int(settings.pop("gpus_per_node", gpus))
    executor = submitit.AutoExecutor(folder=str(study / LOGS), cluster=kind)
    names = {"timeout_min": _MINUTES, "gpus_per_node": gpus, "name": study.name, **settings}
    known = {"partition", "account", "qos", "array_parallelism", "constraint", "time", "mem"}
    parameters = {f"slurm_{k}" if k in known else k: v for k, v in names.items()}
    if jobs:
        parameters["slurm_array_parallelism"] = jobs
    try:
        executor.update_parameters(**parameters)
    except (NameError, TypeError, ValueError) as error:
        raise UsageError(f"--slurm {text}: {error}") from error

    def make(todo: Sequence[Job]) -> Results:
        try:
            submitted = executor.map_array(OnNode(study, gpus), list(todo))
        except RuntimeError as error:
            raise UsageError(f"--slurm {text}: cannot be submitted: {error}") from error
        log_line(f"{len(submitted)} jobs: {submitted[0].job_id if submitted else ''} ...")
        return [_result(job, one) for job, one in zip(submitted, todo)]

    return make


def _result(job: Any, one: Job) -> Dict[str, Any]:
    """The result of a job; one that was killed counts as failed, and goes on when started again."""
    try:
        found: Dict[str, Any] = job.result()
        return found
    except Exception as error:  # whatever happened on the node
        lines: List[str] = [line for line in str(error).splitlines() if line.strip()]
        last = "\n".join(lines[-15:])
        return {"system": one[0].system, "seed": one[0].seed, "status": FAILED, "error": last}
