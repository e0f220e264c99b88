"""Whether a step has to be repeated: digests of files and folders, and the marker that keeps them.

A marker is a JSON object with the step's key and what else is known of the step.
"""

import functools
import hashlib
import json
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Dict, Iterator, Mapping, Tuple

from fairseq_posenc.basics.files import replace_file
from fairseq_posenc.basics.lines import json_text

_WHOLE = 1 << 26  # bytes read at the start of a file, and at the end of a file that has more
_NOT_DATA = (".log", ".part", ".pyc")

#: The files of a data folder that a training reads.  Test sets and the descriptions of tasks may
#: change without another training.
TRAINING_FILES = ("dict*.txt", "train*", "valid*", "reading.json")


def digest_of_value(content: Any) -> str:
    """A digest of a value that JSON can hold, hexadecimal."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


@functools.lru_cache(maxsize=None)
def digest_of(place: str, names: Tuple[str, ...] = ("*",)) -> str:
    """A digest of a file, or of the files in a folder and below; empty if there is none.

    Names and content count, times and the folder's own place do not.  Of a folder, hidden files
    and logs are left out.  A file above 64 MiB counts by its size and 64 MiB at either end.

    Args:
        place: the file or folder.
        names: patterns of the names of files that count.
    """
    path = Path(place)
    if not path.exists():
        return ""
    digest = hashlib.sha256()
    for file in _files(path, names):
        name = file.relative_to(path).as_posix()
        digest.update(json.dumps([name, file.stat().st_size, _content(file)]).encode())
    return digest.hexdigest()


def _files(path: Path, names: Tuple[str, ...]) -> Iterator[Path]:
    """The files that :func:`digest_of` reads, in order."""
    if path.is_file():
        yield path
    for file in sorted(path.rglob("*")) if path.is_dir() else ():
        hidden = any(part.startswith(".") for part in file.relative_to(path).parts)
        counts = any(fnmatch(file.name, pattern) for pattern in names)
        if counts and not hidden and file.suffix not in _NOT_DATA and file.is_file():
            yield file


def _content(file: Path) -> str:
    digest = hashlib.sha256()
    size = file.stat().st_size
    with open(file, "rb") as stream:
        digest.update(stream.read(_WHOLE))
        if size > _WHOLE:
            stream.seek(max(_WHOLE, size - _WHOLE))
            digest.update(stream.read())
    return digest.hexdigest()


def newest(place: str, names: Tuple[str, ...] = ("*",)) -> float:
    """The latest time at which a file that :func:`digest_of` reads was changed."""
    return max((file.stat().st_mtime for file in _files(Path(place), names)), default=0.0)


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
        partial.write_text(json_text(content), encoding="utf-8")


def marker_of(folder: Path, name: str) -> Path:
    """The marker of the step *name* in *folder*."""
    return folder / STEPS / f"{name}.json"


def markers_in(folder: Path) -> Iterator[Dict[str, Any]]:
    """The content of all markers in *folder*."""
    for path in sorted((folder / STEPS).glob("*.json")):
        yield read_object(path)
