"""What is left of a step that is done: a marker with its key and what it found."""

import contextlib
import json
import os
import shutil
from pathlib import Path
from typing import Any, Dict, Mapping, Sequence

from fairseq_posenc.basics.files import replace_file
from fairseq_posenc.study.results import RESULT
from fairseq_posenc.study.runs import Spec

STEPS = "steps"  # the folder of the markers


def read_object(path: Path) -> Dict[str, Any]:
    """A JSON object, or an empty one if there is none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def write_object(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON object; the file is complete or absent."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replace_file(path) as partial:
        partial.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def shared_steps(spec: Spec, other: Path) -> int:
    """The number of first steps that another run has done, too."""
    for number, (step, key) in enumerate(zip(spec.steps, spec.keys)):
        if read_object(other / STEPS / f"{step.name}.json").get("key") != key:
            return number
    return len(spec.steps)


def copy_run(source: Path, target: Path, steps: Sequence[str]) -> None:
    """Copy the files of a run, whose checkpoints are linked, with the markers of *steps* last."""
    for path in sorted(source.rglob("*")):
        place = target / path.relative_to(source)
        if path.is_dir() or path.parent.name == STEPS or path.name in (RESULT, ".lock"):
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            place.unlink()
        except OSError:  # there is none
            pass
        if path.suffix == ".pt":
            with contextlib.suppress(OSError):
                os.link(str(path), str(place))
                continue
        shutil.copyfile(str(path), str(place))
    for name in steps:
        marker = read_object(source / STEPS / f"{name}.json")
        marker["command"] = marker["command"].replace(source.name, target.name)
        write_object(target / STEPS / f"{name}.json", marker)
