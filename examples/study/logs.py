"""Read the logs of fairseq's commands."""

import json
import platform
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any, Dict, List

_PARAMETERS = re.compile(r"num\. shared model params: ([\d,]+) \(num\. trained: ([\d,]+)\)")
_MEMORY = re.compile(r"total memory = ([\d.]+) GB")
_SCORE = re.compile(r"Loss \(base 2\): ([\d.]+), Perplexity: ([\d.]+)")
_SCORED = re.compile(r"Evaluated ([\d,]+) tokens")
_COMMAND = re.compile(r"\+ ((?:env|fairseq|python)\S* .*)")
_SECONDS = re.compile(r"seconds (\d+)")
_DIVERGED = re.compile(r"FloatingPointError: .*")

Part = Dict[str, Any]


def lines_of(path: str) -> List[str]:
    """The lines of a text, split at line feeds only, unlike ``str.splitlines``."""
    lines = Path(path).read_text(encoding="utf-8", errors="replace").split("\n")
    return lines if lines[-1] else lines[:-1]


def fields_of(line: str) -> Dict[str, Any]:
    """The JSON object in a line of a log; empty if there is none."""
    start = line.find("{")
    try:
        found = json.loads(line[start:]) if start >= 0 else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def stage(log: str, name: str) -> Part:
    """The commands in a log, and the seconds that they took, listed under the stage *name*."""
    lines = lines_of(log)
    plug_in = _output("fairseq-posenc", "path")
    commands = [match.group(1) for match in map(_COMMAND.fullmatch, lines) if match]
    shown = list(dict.fromkeys(commands))
    for path in plug_in:
        shown = [one.replace(path, '"$(fairseq-posenc path)"') for one in shown]
    seconds = [int(match.group(1)) for match in map(_SECONDS.fullmatch, lines) if match]
    return {"commands": shown, **({"seconds": {name: sum(seconds)}} if seconds else {})}


def train(log: str) -> Part:
    """Size, length, time, memory and learning curve, from the whole log of a training.

    Entries that an interrupted training logged again when it resumed count once.
    """
    lines = lines_of(log)
    epochs: Dict[int, Dict[str, Any]] = {}
    points: Dict[int, Dict[str, float]] = {}
    free: List[float] = []
    for fields in map(fields_of, lines):
        if "train_num_updates" in fields:
            epochs[int(fields["epoch"])] = fields
        for name, key, updates in (
            ("train_loss", "loss", "num_updates"),
            ("valid_loss", "valid_loss", "valid_num_updates"),
        ):
            if updates in fields and key in fields:
                points.setdefault(int(float(fields[updates])), {})[name] = float(fields[key])
        free += [float(fields[key]) for key in ("gb_free", "train_gb_free") if key in fields]
    tokens, before = 0.0, 0
    for epoch in sorted(epochs):
        updates = int(float(epochs[epoch]["train_num_updates"]))
        tokens += (updates - before) * float(epochs[epoch].get("train_wpb", 0))
        before = updates
    sizes = [match.groups() for match in map(_PARAMETERS.search, lines) if match]
    total = next((float(m.group(1)) for m in map(_MEMORY.search, lines) if m), None)
    curve = [{"update": update, **points[update]} for update in sorted(points)]
    losses = [point["valid_loss"] for point in curve if "valid_loss" in point]
    diverged = [match.group(0) for match in map(_DIVERGED.match, lines) if match]
    over = any("done training in" in line for line in lines)
    return {
        **dict(zip(("parameters", "trained"), (int(n.replace(",", "")) for n in sizes[-1]))),
        "updates": before,
        "tokens": round(tokens),
        "curve": curve,
        "scores": {"loss": losses[-1]} if losses else {},
        **({"peak_memory_mb": round((total - min(free)) * 1024)} if total and free else {}),
        **({} if over else {"error": "\n".join([*lines[-15:], *diverged[-1:]])}),
        **stage(log, "train"),
        "seconds": {
            "train": round(sum(float(e.get("train_train_wall", 0)) for e in epochs.values()))
        },
        "environment": environment(),
    }


def environment() -> Dict[str, str]:
    """The versions of packages, and the name of the device."""
    found = {name: _version(name) for name in ("fairseq", "fairseq-fixed") if _version(name)}
    device = _output("nvidia-smi", "--query-gpu=name", "--format=csv,noheader")
    if not device and Path("/proc/cpuinfo").exists():
        device = re.findall(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return {
        "python": platform.python_version(),
        "torch": _version("torch"),
        "fairseq": next((f"{name} {version}" for name, version in found.items()), ""),
        "fairseq_posenc": _version("fairseq_posenc"),
        "device": next(iter(device), platform.processor() or platform.machine()),
    }


def _output(*words: str) -> List[str]:
    try:
        return subprocess.check_output(words, text=True, timeout=60).splitlines()
    except (OSError, subprocess.SubprocessError):
        return []


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def losses(log: str, subset: str, suffix: str, words: int = 0) -> Part:
    """Loss in bits and perplexity, from the log of fairseq-validate or fairseq-eval-lm.

    Args:
        words: the number of words of the text, for the perplexity per word; 0 for no such score.
    """
    found: Dict[str, float] = {}
    tokens = 0
    for line in lines_of(log):
        counted = _SCORED.search(line)
        tokens = int(counted.group(1).replace(",", "")) if counted else tokens
        score, fields = _SCORE.search(line), fields_of(line)
        if score:
            found.update(loss=float(score.group(1)), perplexity=float(score.group(2)))
        elif f"{subset}_loss" in fields:
            found = {"loss": float(fields[f"{subset}_loss"])}
            bits = float(fields.get(f"{subset}_nll_loss", found["loss"]))
            found["perplexity"] = round(2.0**bits, 3)
            if f"{subset}_accuracy" in fields:
                found["accuracy"] = float(fields[f"{subset}_accuracy"])
    if not found:
        sys.exit(f"{log}: has no loss")
    if words and tokens:
        found["word_perplexity"] = round(2.0 ** (found["loss"] * tokens / words), 3)
    return {"scores": {name + suffix: value for name, value in found.items()}}
