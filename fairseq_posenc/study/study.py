"""Carrying out a plan: the search, and all runs that are not done, several at a time."""

import concurrent.futures
import math
import queue
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

import yaml

from fairseq_posenc.basics.files import replace_file
from fairseq_posenc.steps.lock import hold
from fairseq_posenc.steps.processes import Processes, Stopped
from fairseq_posenc.study.commands import Device
from fairseq_posenc.study.plan import Plan
from fairseq_posenc.study.recipes import RECIPES
from fairseq_posenc.study.results import DONE, PLAN
from fairseq_posenc.study.runs import Chosen, Spec, Tried, specs, speed_specs, trials
from fairseq_posenc.study.work import Worker

Job = Tuple[Spec, str]  # a run, and the last of its steps to do, or nothing for all
Results = List[Dict[str, Any]]


class Pool(NamedTuple):
    """Makes runs on this machine, several at a time."""

    worker: Worker  # makes one
    devices: Sequence[Device]  # one for each run at a time
    stop: Callable[[], None]  # ends the commands under way

    def __call__(self, jobs: Sequence[Job]) -> Results:
        """Make runs; results are in the order of *jobs*.

        Raises:
            UsageError: a folder cannot be written to; what has been done stays.
            KeyboardInterrupt: the study is interrupted.
        """
        free: queue.Queue[Device] = queue.Queue()
        for device in self.devices:
            free.put(device)

        def make(job: Job) -> Dict[str, Any]:
            device = free.get()
            try:
                return self.worker.make(job[0], device, job[1])
            finally:
                free.put(device)

        with concurrent.futures.ThreadPoolExecutor(len(self.devices)) as executor:
            futures = [executor.submit(make, job) for job in jobs]
            try:
                concurrent.futures.wait(futures, return_when="FIRST_EXCEPTION")
                return [future.result() for future in futures if future.done()]
            except BaseException:
                for future in futures:
                    future.cancel()
                self.stop()
                raise


def local_pool(study: Path, devices: Sequence[Device], note: Callable[[str], None]) -> Pool:
    """A pool of this machine's cores or GPUs."""
    processes = Processes()
    return Pool(Worker(study, processes, note), devices, processes.stop)


def carry_out(
    plan: Plan,
    study: Path,
    make: Callable[[Sequence[Job]], Results],
    note: Callable[[str], None],
    alone: Optional[Callable[[Sequence[Job]], Results]] = None,
) -> Results:
    """Make all runs of a plan that are not done.

    Args:
        alone: makes runs one at a time, for measurements of the speed; *make* by default.

    Returns:
        the results of all runs, without those of the speed.

    Raises:
        UsageError: another process is at work on the study, or its folder cannot be written to.
    """
    try:
        with hold(study, "study", False, "another --output"):
            chosen, tried = search(plan, make, note)
            runs = specs(plan, chosen)
            timed = speed_specs(plan, chosen)
            write_plan(study, plan, chosen, tried, runs, timed)
            results = make([(spec, "") for spec in runs])
            if timed:
                (alone or make)([(spec, "") for spec in timed])
            return results
    except Stopped:
        raise KeyboardInterrupt from None


def search(
    plan: Plan, make: Callable[[Sequence[Job]], Results], note: Callable[[str], None]
) -> Tuple[Chosen, Tried]:
    """Try the values of the search with the first seeds, and choose by the mean validation loss.

    Returns:
        the chosen flags, and the losses of every value with which all seeds succeeded and none
            diverged, one for each seed, by system.
    """
    found = trials(plan)
    until = RECIPES[plan.recipe].until
    jobs = [(spec, until) for tried in found.values() for _, runs in tried for spec in runs]
    results = iter(make(jobs) if jobs else [])
    chosen: Chosen = {}
    losses: Tried = {}
    for system, tried in found.items():
        flags = {" ".join(next(iter(one.items()))): one for one, _ in tried}
        found_by_value = {
            name: [_loss(next(results)) for _ in runs] for name, (_, runs) in zip(flags, tried)
        }
        means = {name: math.fsum(each) / len(each) for name, each in found_by_value.items()}
        finite = {name: loss for name, loss in means.items() if math.isfinite(loss)}
        losses[system] = {name: found_by_value[name] for name in finite}
        # where every value failed, the runs of this system fail, too, and say why
        best = min(flags, key=lambda name: finite.get(name, math.inf))
        chosen[system] = flags[best]
        note(f"{system}: {best} of {finite}")
    return chosen, losses


def _loss(result: Dict[str, Any]) -> float:
    """The validation loss of a run, infinite if the run failed or diverged."""
    loss = float(result["scores"]["loss"]) if result["status"] == DONE else math.inf
    return loss if math.isfinite(loss) else math.inf


def write_plan(
    study: Path,
    plan: Plan,
    chosen: Chosen,
    tried: Tried,
    runs: Iterable[Spec],
    timed: Iterable[Spec],
) -> None:
    """Write ``plan.yaml``: the resolved plan, what the search chose, and the names of its runs."""
    known = RECIPES[plan.recipe].measures(plan)
    names = plan.measures or tuple(known)
    measures = {
        name: {"better": known[name].better, "label": known[name].label, "unit": known[name].unit}
        for name in names
    }
    content = {
        **{key: _plain(value) for key, value in plan._asdict().items()},
        "generated": {one.task: _plain(one._asdict()) for one in plan.generated},
        "measures": measures,
        "chosen": _plain(chosen),
        "tried": _plain(tried),
        "runs": [spec.name for spec in runs],
        "speed_runs": [spec.name for spec in timed],
    }
    with replace_file(study / PLAN) as partial:
        text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=100)
        partial.write_text(text, encoding="utf-8")


def _plain(value: Any) -> Any:
    """Nested values of the kinds that YAML has."""
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    return [_plain(entry) for entry in value] if isinstance(value, (list, tuple)) else value


def log_line(text: str) -> None:
    """Print a line of progress with the time."""
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)
