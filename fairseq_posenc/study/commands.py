"""The command lines of a run, as they are executed and as they are shown."""

import os
import shlex
from pathlib import Path
from typing import List, Sequence

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.study.logs import training_is_done
from fairseq_posenc.study.processes import PACKAGE, Device
from fairseq_posenc.study.recipes.base import CHECKPOINTS, PLUG_IN, RUN, Step
from fairseq_posenc.study.results import RUNS
from fairseq_posenc.study.runs import Spec


def is_trained(folder: Path, log: Path, words: Sequence[str]) -> bool:
    """Whether a training is over, to which fairseq would otherwise add an update."""
    last = folder / CHECKPOINTS / "checkpoint_last.pt"
    if not last.exists():
        return False
    if training_is_done(log):
        return True
    if "--max-update" not in words:
        return False
    from fairseq_posenc.checkpoints.reading import read_checkpoint

    try:
        history = read_checkpoint(last, lazy=True)["optimizer_history"]
    except (UsageError, KeyError):  # fairseq says what is wrong with it
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
