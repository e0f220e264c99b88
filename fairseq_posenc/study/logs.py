"""Reading the logs of fairseq's commands."""

import json
import re
from pathlib import Path
from typing import Any, Dict, Iterable, List, Mapping, Optional

from fairseq_posenc.analysis.training import parse_line
from fairseq_posenc.basics.errors import UsageError

_PARAMETERS = re.compile(r"num\. shared model params: ([\d,]+) \(num\. trained: ([\d,]+)\)")
_MEMORY = re.compile(r"total memory = ([\d.]+) GB")
_SCORE = re.compile(r"Loss \(base 2\): ([\d.]+), Perplexity: ([\d.]+)")
MEGABYTES = 1024.0  # in a gigabyte


def lines_of(path: Path) -> List[str]:
    """The lines of a file, or none if there is no such file."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return split_lines(text)


def split_lines(text: str) -> List[str]:
    """The lines of a text, split at line feeds only, which ``str.splitlines`` is not."""
    lines = text.split("\n")
    return lines if lines[-1] else lines[:-1]


def validated(curve: Iterable[Mapping[str, Any]]) -> Dict[int, float]:
    """The validation losses of a learning curve by update, in order."""
    return {int(point["update"]): point["valid_loss"] for point in curve if "valid_loss" in point}


def won_back(losses: Mapping[int, float], trained: float) -> Optional[int]:
    """The first update at which a loss is no higher than that of the trained model, or None.

    >>> won_back({0: 5.0, 50: 4.0, 100: 3.0}, 4.5)
    50
    """
    return min((update for update, loss in losses.items() if loss <= trained), default=None)


def read_training(folder: Path, step: str = "train") -> Dict[str, Any]:
    """Size, length and learning curve of a training, from the log of its step.

    What was logged twice, because the training was interrupted in between, counts once.

    Raises:
        UsageError: the log is incomplete.
    """
    path = folder / f"{step}.log"
    lines = lines_of(path)
    sizes = [match.groups() for match in map(_PARAMETERS.search, lines) if match]
    epochs: Dict[int, Mapping[str, str]] = {}
    points: Dict[int, Dict[str, float]] = {}
    parsed = list(map(parse_line, lines))
    for fields in parsed:
        if "train_num_updates" in fields:
            epochs[int(fields["epoch"])] = fields
        for name, key in (("train_loss", "loss"), ("valid_loss", "valid_loss")):
            updates = fields.get("valid_num_updates" if name == "valid_loss" else "num_updates")
            if updates is not None and key in fields:
                points.setdefault(int(float(updates)), {})[name] = float(fields[key])
    if not sizes or not epochs:
        raise UsageError(f"{path}: is incomplete; remove the folder of this run to repeat it")
    return {
        **dict(zip(("parameters", "trained"), (int(n.replace(",", "")) for n in sizes[-1]))),
        "updates": max(int(float(fields["train_num_updates"])) for fields in epochs.values()),
        "tokens": _tokens(epochs),
        "seconds": {"train": round(sum(_number(f, "train_train_wall") for f in epochs.values()))},
        "curve": [{"update": update, **points[update]} for update in sorted(points)],
        **_memory(lines, parsed),
    }


def _memory(lines: List[str], fields: Iterable[Mapping[str, str]]) -> Dict[str, Any]:
    """The peak of the GPU's memory, if the log says it."""
    total = next((float(m.group(1)) for m in map(_MEMORY.search, lines) if m), None)
    keys = ("gb_free", "train_gb_free")
    free = [float(found[key]) for found in fields for key in keys if key in found]
    return {"peak_memory_mb": round((total - min(free)) * MEGABYTES)} if total and free else {}


def _tokens(epochs: Mapping[int, Mapping[str, str]]) -> int:
    total, before = 0.0, 0
    for epoch in sorted(epochs):
        updates = int(float(epochs[epoch]["train_num_updates"]))
        total += (updates - before) * _number(epochs[epoch], "train_wpb")
        before = updates
    return round(total)


def _number(fields: Mapping[str, str], key: str) -> float:
    return float(fields.get(key, 0))


def fields_of(line: str, subset: str) -> Dict[str, Any]:
    """What a line of the log of fairseq-validate says of a *subset*; nothing if it says nothing."""
    start = line.find(f'{{"{subset}_')
    found: Dict[str, Any] = json.loads(line[start:]) if start >= 0 else {}
    return found


def last_losses(path: Path, subset: str = "valid") -> Dict[str, float]:
    """Loss in bits and perplexity, from the output of fairseq-validate or fairseq-eval-lm.

    Args:
        subset: what was validated, with which fairseq begins the names of the values.

    Raises:
        UsageError: there is none.
    """
    found: Optional[Dict[str, float]] = None
    for line in lines_of(path):
        score = _SCORE.search(line)
        fields = fields_of(line, subset)
        if score:
            found = {"loss": float(score.group(1)), "perplexity": float(score.group(2))}
        elif fields:
            found = {"loss": float(fields[f"{subset}_loss"])}
            bits = float(fields.get(f"{subset}_nll_loss", found["loss"]))
            found["perplexity"] = round(2.0**bits, 3)
            if f"{subset}_accuracy" in fields:
                found["accuracy"] = float(fields[f"{subset}_accuracy"])
    if found is None:
        raise UsageError(f"{path}: has no loss; remove the folder of this run to repeat it")
    return found
