"""The software and the device of a run."""

import functools
import platform
import subprocess
from importlib import metadata
from typing import Dict, Optional

from fairseq_posenc.study.processes import Device
from fairseq_posenc.version import __version__

_FAIRSEQ = ("fairseq", "fairseq-fixed")  # the distributions that carry it


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
