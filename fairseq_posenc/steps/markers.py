"""The marker of a step: a JSON object with the step's key and what is known of it."""

import json
from pathlib import Path
from typing import Any, Dict, Iterator, Mapping

from fairseq_posenc.basics.files import replace_file

STEPS = "steps"  # the folder of the markers


def read_object(path: Path) -> Dict[str, Any]:
    """A JSON object; an empty one if the file is missing or damaged, as a marker may be."""
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


def marker_of(folder: Path, name: str) -> Path:
    """The marker of the step *name* in *folder*."""
    return folder / STEPS / f"{name}.json"


def markers_in(folder: Path) -> Iterator[Dict[str, Any]]:
    """The content of all markers in *folder*."""
    for path in sorted((folder / STEPS).glob("*.json")):
        yield read_object(path)
