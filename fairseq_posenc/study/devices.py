"""Where runs compute: the devices of a study, and the software and hardware of a run."""

import functools
import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from fairseq_posenc.version import __version__

PACKAGE = Path(__file__).resolve().parents[1]
_FAIRSEQ = ("fairseq", "fairseq-fixed")  # the distributions that carry fairseq


class Device(NamedTuple):
    """Where a run computes.

    Args:
        gpus: values for CUDA_VISIBLE_DEVICES; none for the CPU.
        threads: threads of the part that the CPU computes.
        visible: whether to set CUDA_VISIBLE_DEVICES, which under Slurm is set already.
    """

    gpus: Tuple[str, ...] = ()
    threads: int = 1
    visible: bool = True

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
    # the largest group of GPUs whose number divides the one that the batch is meant for
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
