"""The command lines of a run as they are executed and shown, and how far runs are."""

import os
import shlex
from pathlib import Path
from typing import List, Sequence

from fairseq_posenc.analysis.training import parse_line
from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.steps.lock import holder
from fairseq_posenc.steps.markers import marker_of
from fairseq_posenc.steps.training import is_over
from fairseq_posenc.study.devices import PACKAGE, Device
from fairseq_posenc.study.logs import lines_of
from fairseq_posenc.study.recipes.base import CHECKPOINTS, PLUG_IN, RUN, Step
from fairseq_posenc.study.results import RUNS
from fairseq_posenc.study.runs import Spec, read_result


def is_trained(folder: Path, log: Path, words: Sequence[str]) -> bool:
    """Whether a training is over; fairseq would add an update to such a training."""
    last = folder / CHECKPOINTS / "checkpoint_last.pt"
    if not last.exists():
        return False
    if is_over(log):
        return True
    if "--max-update" not in words:
        return False
    from fairseq_posenc.checkpoints.reading import read_checkpoint

    try:
        history = read_checkpoint(last, lazy=True)["optimizer_history"]
    except (UsageError, KeyError):  # fairseq says what is wrong with the checkpoint
        return False
    return int(history[-1]["num_updates"]) >= int(words[words.index("--max-update") + 1])


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


def dry_run(specs: Sequence[Spec], study: Path, device: Device) -> List[str]:
    """The commands of all runs."""
    lines = []
    for spec in specs:
        folder = study / RUNS / spec.name
        lines.append(f"# {spec.name}: {status_of(spec, study)}")
        for step in spec.steps:
            words = command(step, spec, device)
            lines.append(shown(words, study, folder) if words else f"# {step.name}")
    return lines


def status_of(spec: Spec, study: Path) -> str:
    """The state of a run in a few words."""
    folder = study / RUNS / spec.name
    result = read_result(folder, spec)
    if result is not None:
        last = result["error"].strip().splitlines()[-1:]
        return " ".join([result["status"], *last])
    if not folder.exists():
        return "waiting"
    done = [step.name for step in spec.steps if marker_of(folder, step.name).exists()]
    fields = [parse_line(line) for line in lines_of(folder / "train.log")]
    updates = [f["num_updates"] for f in fields if "num_updates" in f]
    place = (
        f"after {done[-1]}" if done else f"at update {updates[-1]}" if updates else "at the start"
    )
    return f"{'running' if holder(folder) else 'interrupted'}, {place}"


def table(specs: Sequence[Spec], study: Path) -> List[str]:
    """A line for each run, and one with the numbers of each state."""
    states = {spec.name: status_of(spec, study) for spec in specs}
    width = max(map(len, states))
    lines = [f"{name:<{width}}  {state}" for name, state in states.items()]
    kinds = [state.split(" ")[0].rstrip(",") for state in states.values()]
    counts = ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))
    return [*lines, f"{len(lines)} runs: {counts}"]
