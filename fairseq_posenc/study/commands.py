"""Where runs compute, the command lines of their steps there, and how far the runs are."""

import functools
import os
import platform
import shlex
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from fairseq_posenc.analysis.training import parse_line
from fairseq_posenc.steps.lock import holder
from fairseq_posenc.steps.markers import marker_of
from fairseq_posenc.study.logs import lines_of
from fairseq_posenc.study.recipes.base import PLUG_IN, RUN, Step
from fairseq_posenc.study.results import RUNS
from fairseq_posenc.study.runs import Spec, read_result
from fairseq_posenc.version import __version__

PACKAGE = Path(__file__).resolve().parents[1]
_FAIRSEQ = ("fairseq", "fairseq-fixed")  # the distributions that carry fairseq


class Device(NamedTuple):
    """Where a run computes."""

    gpus: Tuple[str, ...] = ()  # values for CUDA_VISIBLE_DEVICES; none for the CPU
    threads: int = 1  # threads of the part that the CPU computes
    visible: bool = True  # whether to set CUDA_VISIBLE_DEVICES, which under Slurm is set already

    def environment(self) -> Dict[str, str]:
        """The environment of the processes of a run."""
        found = {**os.environ, "OMP_NUM_THREADS": str(self.threads), "PYTHONUNBUFFERED": "1"}
        if self.gpus and self.visible:
            found["CUDA_VISIBLE_DEVICES"] = ",".join(self.gpus)
        paths = [str(PACKAGE.parent), os.environ.get("PYTHONPATH", "")]
        found["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        return found


def devices_of(names: Sequence[str], per_run: int, jobs: int, runs: int) -> List[Device]:
    """The devices of the runs that go on at the same time.

    Runs share the cores, unless ``OMP_NUM_THREADS`` says how many threads a run has, as it should
    where other programs need cores, too.

    Args:
        names: GPUs, as for CUDA_VISIBLE_DEVICES; none for the CPU.
        per_run: GPUs that the batch of a run is meant for; a run gets fewer if there are fewer.
        jobs: runs at a time; 0 for one on each GPU or core.
        runs: the number of runs there are.
    """
    cores = cores_here()
    # the largest number of GPUs that divides the number of GPUs that the batch is meant for
    size = max(n for n in range(1, max(1, len(names)) + 1) if per_run % n == 0)
    groups = [tuple(names[i : i + size]) for i in range(0, len(names) - size + 1, size)] or [()]
    count = jobs or min(max(1, runs), len(groups) if names else cores)
    asked = os.environ.get("OMP_NUM_THREADS", "")
    threads = int(asked) if asked.isdecimal() and int(asked) else max(1, cores // count)
    return [Device(groups[i % len(groups)], threads) for i in range(count)]


def cores_here() -> int:
    """The number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def environment(device: Device) -> Dict[str, str]:
    """Versions, and the name of the device."""
    fairseq = next((f"{n} {v}" for n in _FAIRSEQ for v in [_version(n)] if v), "unknown")
    return {
        "python": platform.python_version(),
        "torch": _version("torch") or "unknown",
        "fairseq": fairseq,
        "fairseq_posenc": __version__,
        "device": _gpu(len(device.gpus)) if device.gpus else _cpu(device.threads),
    }


@functools.lru_cache(maxsize=None)
def _version(name: str) -> Optional[str]:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


@functools.lru_cache(maxsize=None)
def _gpu(count: int) -> str:
    words = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    try:
        names = subprocess.check_output(words, text=True, timeout=30).split("\n")
    except (OSError, subprocess.SubprocessError):
        names = ["GPU"]
    return f"{count} x {names[0].strip()}"


@functools.lru_cache(maxsize=None)
def _cpu(threads: int) -> str:
    name = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as stream:
            models = [line.partition(":")[2].strip() for line in stream if "model name" in line]
        name = models[0] if models else name
    except OSError:
        pass
    return f"{name}, {threads} thread{'s' * (threads > 1)}"


def command(step: Step, spec: Spec, device: Device) -> List[str]:
    """The words of a step's command on a device, with places to fill in."""
    words = list(step.words)
    if not words or not step.on_device:
        return words
    if words[0] == "fairseq-train":
        processes = max(1, len(device.gpus)) if step.trains else 1
        if step.trains and spec.gpus > processes:
            words += ["--update-freq", str(spec.update_freq * spec.gpus // processes)]
        words += ["--distributed-world-size", str(processes)]
    return words if device.gpus else [*words, "--cpu"]


def in_place(words: Sequence[str], folder: Path) -> List[str]:
    """A command with the places of the run and of the plug-in."""
    return [word.replace(RUN, str(folder)).replace(PLUG_IN, str(PACKAGE)) for word in words]


def shown(words: Sequence[str], study: Path, folder: Path) -> str:
    """A command line for a shell, without the places of this machine."""
    root = os.path.relpath(study)
    root = study.name if root.startswith("..") else root
    place = os.path.join(root, RUNS, folder.name)
    quoted = (shlex.quote(word.replace(RUN, place)) for word in words)
    return " ".join(quoted).replace(shlex.quote(PLUG_IN), '"$(fairseq-posenc path)"')


def dry_run(specs: Sequence[Spec], study: Path, device: Device, until: str = "") -> List[str]:
    """The commands of all runs; for *until* see :func:`status_of`."""
    lines = []
    for spec in specs:
        folder = study / RUNS / spec.name
        lines.append(f"# {spec.name}: {status_of(spec, study, until)}")
        for step in spec.steps:
            words = command(step, spec, device)
            lines.append(shown(words, study, folder) if words else f"# {step.name}")
    return lines


def status_of(spec: Spec, study: Path, until: str = "") -> str:
    """The state of a run in a few words.

    Args:
        spec: the run.
        study: the folder of the study.
        until: the last step of a trial; a trial that has done it and does not run is tried.
    """
    folder = study / RUNS / spec.name
    result = read_result(folder, spec)
    if result is not None:
        last = result["error"].strip().splitlines()[-1:]
        return " ".join([result["status"], *last])
    if not folder.exists():
        return "waiting"
    done = [step.name for step in spec.steps if marker_of(folder, step.name).exists()]
    if until in done and not holder(folder):
        return "tried"
    fields = [parse_line(line) for line in lines_of(folder / f"{spec.steps[0].name}.log")]
    updates = [f["num_updates"] for f in fields if "num_updates" in f]
    place = (
        f"after {done[-1]}" if done else f"at update {updates[-1]}" if updates else "at the start"
    )
    return f"{'running' if holder(folder) else 'interrupted'}, {place}"


def table(specs: Sequence[Spec], study: Path, until: str = "") -> List[str]:
    """A line for each run, and one with the numbers of each state; see :func:`status_of`."""
    states = {spec.name: status_of(spec, study, until) for spec in specs}
    width = max(map(len, states))
    lines = [f"{name:<{width}}  {state}" for name, state in states.items()]
    kinds = [state.split(" ")[0].rstrip(",") for state in states.values()]
    counts = ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))
    return [*lines, f"{len(lines)} runs: {counts}"]
