"""Making one run, step by step; a step that is done is not repeated."""

import contextlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Sequence

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.steps.lock import hold
from fairseq_posenc.steps.markers import STEPS, marker_of, read_object, write_object
from fairseq_posenc.steps.processes import Ended
from fairseq_posenc.steps.training import LAST, is_over, remove_leftovers
from fairseq_posenc.study.commands import Device, command, environment, in_place, shown
from fairseq_posenc.study.logs import last_lines
from fairseq_posenc.study.recipes.base import CHECKPOINTS, Step
from fairseq_posenc.study.results import DONE, FAILED, RESULT, RUNS
from fairseq_posenc.study.runs import Spec, finished_result

_SCORING = ("validate", "evaluate")  # steps that read the checkpoint to be scored
TRIES = 2

Execute = Callable[[Sequence[str], Path, Mapping[str, str], Sequence[int]], Ended]
Note = Callable[[str], None]


class StepFailed(Exception):
    """A step failed; the argument is the end of its log."""


class Stale(Exception):
    """A step is done, but a file that the step made is gone; the argument names the file."""


@dataclass(frozen=True)
class Worker:
    """Makes the runs of a study."""

    study: Path
    execute: Execute
    note: Note

    def make(self, spec: Spec, device: Device, until: str = "") -> Dict[str, Any]:
        """Make a run, unless it is finished, and return its result.

        A step that fails is tried once more; then the run counts as failed.

        Args:
            until: the last step to do, for a trial, which has no ``result.json``.

        Raises:
            UsageError: the folder cannot be written to, for example because the disk is full.
        """
        folder = self.study / RUNS / spec.name
        finished = finished_result(folder, spec)
        if finished is not None:
            return finished
        try:
            with hold(folder, "study", waits=True) as (lock, _):
                # another process may have finished this run while we waited for the lock
                finished = finished_result(folder, spec)
                return finished or _Making(self, spec, folder, device, lock).attempt(until)
        except OSError as error:
            raise UsageError(
                f"{error.filename or folder}: {error.strerror or error}; once that is put right, "
                "the same command goes on"
            ) from error

    def fail(self, spec: Spec, device: Device, error: str) -> Dict[str, Any]:
        """Note that a run has failed, and return its result.

        Args:
            error: the last lines of the log.
        """
        folder = self.study / RUNS / spec.name
        result = _result(spec, device, {}, FAILED, error)
        write_object(folder / RESULT, result)
        return result


class _Making(NamedTuple):
    """A run that is being made, in a folder that is locked."""

    worker: Worker
    spec: Spec
    folder: Path
    device: Device
    lock: Sequence[int]

    def attempt(self, until: str) -> Dict[str, Any]:
        self._adopt()
        name, note = self.spec.name, self.worker.note
        error = ""
        for attempt in range(1, TRIES + 1):
            try:
                return self._steps(until)
            except Stale as gone:
                first = _forget(self.spec, self.folder, str(gone))
                note(f"{name}: {gone} is gone; beginning anew with {first}")
                error = f"{gone} is gone"
            except StepFailed as failure:
                error = str(failure)
                again = "; trying once more" if attempt < TRIES else ""
                last = error.strip().splitlines()[-1:] or [""]
                note(f"{name}: failed{again}: {last[0]}")
        return self.worker.fail(self.spec, self.device, error)

    def _steps(self, until: str) -> Dict[str, Any]:
        found: Dict[str, Any] = {}
        for step, key in zip(self.spec.steps, self.spec.keys):
            marker = read_object(marker_of(self.folder, step.name))
            found[step.name] = marker if marker.get("key") == key else self._do(step, key)
            if step.name == until:
                return _result(self.spec, self.device, found, DONE)
        result = _result(self.spec, self.device, found, DONE)
        write_object(self.folder / RESULT, result)
        for path in self.folder.glob(f"{CHECKPOINTS}/**/*.pt"):  # only the scored one is needed now
            if path != self.folder / result["checkpoint"]:
                path.unlink()
        self.worker.note(f"{self.spec.name}: done")
        return result

    def _do(self, step: Step, key: str) -> Dict[str, Any]:
        folder, log = self.folder, self.folder / f"{step.name}.log"
        for name in step.inputs:
            if not (folder / name).exists():
                raise Stale(name)
        if step.fresh:
            shutil.rmtree(str(folder / step.fresh), ignore_errors=True)
        words = command(step, self.spec, self.device)
        ended = Ended(0)
        # a training that was killed after its end says so in its log
        trained = step.trains and (folder / step.place / LAST).exists() and is_over(log)
        if words and not trained:
            ended = self._run(step, words, log)
        try:
            collected = step.collect(folder)
        except (UsageError, OSError, ValueError, KeyError) as error:
            raise StepFailed(f"{step.name}: {error}\n{last_lines(log)}") from error
        if step.trains:
            collected = {**collected, "environment": environment(self.device)}
        marker = {
            "key": key,
            "result": collected,
            "seconds": round(ended.seconds, 1),
            "peak_memory_mb": round(ended.peak_memory_mb),
            "command": shown(words, self.worker.study, folder) if words else "",
        }
        write_object(marker_of(folder, step.name), marker)
        if step.discards:
            for path in folder.glob(step.discards):
                path.unlink()
        return marker

    def _run(self, step: Step, words: List[str], log: Path) -> Ended:
        remove_leftovers(self.folder / step.place)
        if not step.trains:
            log.write_text("", encoding="utf-8")
        self.worker.note(f"{self.spec.name}: {step.name}")
        environment = self.device.environment()
        ended = self.worker.execute(in_place(words, self.folder), log, environment, self.lock)
        if ended.status:
            killed = "was killed (is the memory exhausted?)"
            how = killed if ended.status == -9 else f"ended with status {ended.status}"
            raise StepFailed(f"{step.name}: {how}\n{last_lines(log)}")
        return ended

    def _adopt(self) -> None:
        """Take over the first steps of a finished run of the same system and seed.

        A changed plan thus repeats only what depends on the change.
        """
        spec, folder = self.spec, self.folder
        if (folder / STEPS).exists() or (folder / f"{spec.steps[0].name}.log").exists():
            return
        others = [
            other
            for other in sorted(folder.parent.glob(f"{spec.system}-seed{spec.seed}-*"))
            if other != folder and read_object(other / RESULT).get("status") == DONE
        ]
        counts = {other: _shared_steps(spec, other) for other in others}
        for other in sorted(others, key=lambda other: -counts[other]):
            shared = counts[other]
            if shared and all((other / name).exists() for name in _still_read(spec, shared)):
                _copy_run(other, folder, [step.name for step in spec.steps[:shared]])
                self.worker.note(f"{spec.name}: has {shared} steps in common with {other.name}")
                return


def _result(
    spec: Spec, device: Device, markers: Mapping[str, Any], status: str, error: str = ""
) -> Dict[str, Any]:
    result: Dict[str, Any] = {
        "system": spec.system,
        "seed": spec.seed,
        "digest": spec.digest,
        "status": status,
        "flags": spec.flags,
        "base": list(spec.base),
        "commands": [m["command"] for m in markers.values() if m["command"]],
        "checkpoint": next((s.inputs[0] for s in spec.steps if s.name in _SCORING), ""),
        "error": error,
        "environment": environment(device),
    }
    seconds: Dict[str, float] = {}
    memory = 0  # the largest memory of a process that trains, in MB
    for step in spec.steps:
        marker = markers.get(step.name)
        if marker is None:
            continue
        _add(result, marker["result"])
        if step.trains or step == spec.steps[0]:
            memory = max(memory, marker["peak_memory_mb"])
        if step.words and not step.trains:  # a training's log has the time of all its starts
            stage = step.stage or step.name
            seconds[stage] = round(seconds.get(stage, 0) + marker["seconds"], 1)
    result.setdefault("peak_memory_mb", memory)
    _add(result, {"seconds": seconds})
    return result


def _add(result: Dict[str, Any], more: Mapping[str, Any]) -> None:
    """Add entries to nested dictionaries."""
    for key, value in more.items():
        if isinstance(value, dict):
            _add(result.setdefault(key, {}), value)
        else:
            result[key] = value


def _forget(spec: Spec, folder: Path, gone: str) -> str:
    """Forget the step that made a missing file, and all later steps; return the step's name."""
    made_by = (step for step in spec.steps if _made(step, gone))
    first = next(made_by, spec.steps[0])
    for step in spec.steps[spec.steps.index(first) :]:
        for path in (marker_of(folder, step.name), folder / f"{step.name}.log"):
            with contextlib.suppress(OSError):
                path.unlink()
        if step.trains:
            shutil.rmtree(str(folder / step.place), ignore_errors=True)
    return first.name


def _made(step: Step, name: str) -> bool:
    """True if a file is in the folder that a step makes."""
    place = step.place if step.trains else step.fresh
    return bool(place) and name.startswith(f"{place}/")


def _still_read(spec: Spec, done: int) -> List[str]:
    """The files of the first *done* steps that later steps read."""
    later = [name for step in spec.steps[done:] for name in step.inputs]
    return [name for name in later if any(_made(step, name) for step in spec.steps[:done])]


def _shared_steps(spec: Spec, other: Path) -> int:
    """The number of first steps that the run in folder *other* has done, too."""
    for number, (step, key) in enumerate(zip(spec.steps, spec.keys)):
        if read_object(marker_of(other, step.name)).get("key") != key:
            return number
    return len(spec.steps)


def _copy_run(source: Path, target: Path, steps: Sequence[str]) -> None:
    """Copy the files of a run, whose checkpoints are linked, with the markers of *steps* last."""
    for path in sorted(source.rglob("*")):
        place = target / path.relative_to(source)
        if path.is_dir() or path.parent.name == STEPS or path.name in (RESULT, ".lock"):
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(OSError):  # there is none
            place.unlink()
        if path.suffix == ".pt":
            with contextlib.suppress(OSError):
                os.link(str(path), str(place))
                continue
        shutil.copyfile(str(path), str(place))
    for name in steps:
        marker = read_object(marker_of(source, name))
        marker["command"] = marker["command"].replace(source.name, target.name)
        write_object(marker_of(target, name), marker)
