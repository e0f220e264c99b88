"""A step of a recipe: commands that are run once, and again when what decides them has changed."""

import contextlib
import filecmp
import os
import shlex
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Sequence, Tuple

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.steps.lock import hold
from fairseq_posenc.steps.markers import (
    TRAINING_FILES,
    digest_of,
    digest_of_value,
    marker_of,
    markers_in,
    read_object,
    write_object,
)
from fairseq_posenc.steps.processes import run, say, watched

PART = ".part"  # the folder in which folders are made that replace others
_AND = "&&"  # between the commands of a step
_WORKERS = "--workers"  # processes, whose number decides nothing

Place = Tuple[str, Tuple[str, ...]]  # a file or folder, and patterns of the names that count in it


class Step(NamedTuple):
    """A step."""

    name: str  # the name, unique in the folder
    folder: Path  # the folder of its marker
    words: Sequence[str]  # the command, or several with ``&&`` between them
    inputs: Sequence[Place] = ()  # what it reads
    outputs: Sequence[str] = ()  # the files and folders that it makes
    settings: Sequence[str] = ()  # what else decides what it makes
    # folders that it makes anew: the commands write the folder of the same name in ``.part`` beside
    # it, which is put in its place at the end
    replaces: Sequence[str] = ()
    known_by: str = ""  # a file in each of those folders, by which it is known as made by a recipe
    log: str = ""  # a file for the output of the commands, or empty; complete or absent
    watch: str = ""  # a folder that the commands fill without a word on their progress, or empty
    option: str = ""  # the option of the recipe that names the folder, for messages

    @property
    def made(self) -> List[str]:
        """All files and folders that are there once the step is done."""
        return [*self.outputs, *self.replaces, *([self.log] if self.log else [])]

    @property
    def other(self) -> str:
        """What to give where the folder cannot be used."""
        return f"another {self.option or 'folder'}"


def commands_of(words: Sequence[str]) -> List[List[str]]:
    """The commands of a step.

    >>> commands_of(["mkdir", "a", "&&", "cp", "b", "a"])
    [['mkdir', 'a'], ['cp', 'b', 'a']]
    """
    found: List[List[str]] = [[]]
    for word in words:
        if word == _AND:
            found.append([])
        else:
            found[-1].append(word)
    return [command for command in found if command]


def key_of(step: Step) -> str:
    """The digest of everything that decides what a step makes.

    Places do not count, so that a folder can be moved: inputs count by their content and by the
    steps that made them, and the step's own folder is left out of the command.
    """
    places = [place for place, _ in step.inputs]
    makers = []
    for marker in markers_in(step.folder):
        made = [os.path.join(step.folder, place) for place in marker.get("made", ())]
        if marker.get("name") != step.name and any(_overlap(a, b) for a in made for b in places):
            makers.append(marker.get("key", ""))
    return digest_of_value(
        [
            step.name,
            plain_words(step),
            list(inputs_of(step).values()),
            sorted(makers),
            list(step.settings),
        ]
    )


def plain_words(step: Step) -> List[str]:
    """The words of a step without the places of its inputs and its folder, and without workers."""
    inputs = {place: f"<input {number}>" for number, (place, _) in enumerate(step.inputs)}
    folder, words = os.path.abspath(step.folder), list(step.words)
    while _WORKERS in words:
        at = words.index(_WORKERS)
        del words[at : at + 2]
    return [inputs.get(word, word).replace(folder, "<folder>") for word in words]


def inputs_of(step: Step) -> Dict[str, str]:
    """The digests of the inputs of a step by their places."""
    return {os.path.abspath(place): digest_of(place, names) for place, names in step.inputs}


def _overlap(one: str, two: str) -> bool:
    """Whether two places are the same, or one lies in the other."""
    both = [os.path.realpath(one), os.path.realpath(two)]
    return os.path.commonpath(both) in both


def check(step: Step) -> None:
    """Refuse what a step cannot do, before anything is done.

    Raises:
        UsageError: an input is missing, lies in a folder that would be replaced, or such a folder
            is there and is not what a recipe makes.
    """
    for place, _ in step.inputs:
        if not os.path.exists(place):
            raise UsageError(f"{step.name}: {place}: no such file or folder")
    for folder in step.replaces:
        if not os.path.lexists(folder):
            continue
        for place, _ in step.inputs:
            if os.path.realpath(folder) == os.path.commonpath(
                [os.path.realpath(place), os.path.realpath(folder)]
            ):
                raise UsageError(
                    f"{folder}: would be replaced, and {place} lies in it; give {step.other}"
                )
        own = os.path.isdir(folder) and (set(os.listdir(folder)) <= {".lock"})
        if not own and not (step.known_by and os.path.isfile(os.path.join(folder, step.known_by))):
            raise UsageError(
                f"{folder}: exists, and is not what this script makes there (it has no "
                f"{step.known_by or 'such content'}); move it away, or give {step.other}"
            )


def do(step: Step, waits: bool = False) -> None:
    """Do a step, unless it is done.

    Args:
        waits: whether to wait for another process that is at work in the folder.

    Raises:
        UsageError: the step is refused, or a command fails.
    """
    with hold(step.folder, step.name, waits, step.other) as (descriptors, variables):
        check(step)
        marker, key = marker_of(step.folder, step.name), key_of(step)
        if read_object(marker).get("key") == key:
            gone = [place for place in step.made if not os.path.exists(place)]
            if not gone:
                say(f"{step.name}: already done")
                return
            say(f"{step.name}: was done, but {gone[0]} is gone")
        say(step.name)
        with contextlib.suppress(FileNotFoundError):
            marker.unlink()
        begun = time.monotonic()
        for folder in step.replaces:
            shutil.rmtree(part_of(folder), ignore_errors=True)
        run_all(step, descriptors, variables)
        for folder in step.replaces:
            keep_what_is_trained_on(step, folder)
        for folder in step.replaces:
            put_in_place(folder, step.name)
        finish(step, {"key": key, "seconds": round(time.monotonic() - begun, 1)})


def part_of(folder: str) -> str:
    """The folder that commands write in the place of *folder*, with the same name.

    >>> part_of("out/data-bin/")
    'out/.part/data-bin'
    """
    parent, name = os.path.split(folder.rstrip("/"))
    return os.path.join(parent, PART, name)


def keep_what_is_trained_on(step: Step, folder: str) -> None:
    """Refuse to replace data that a training beside the step's folder has read with other data.

    Raises:
        UsageError: naming the training, which could not go on with the new data.
    """
    before, place = digest_of(folder, TRAINING_FILES), os.path.abspath(folder)
    if before == digest_of(part_of(folder), TRAINING_FILES):
        return
    for beside in sorted(step.folder.parent.iterdir()):
        trained = [found["inputs"] for found in markers_in(beside) if "flags" in found]
        if before and any(inputs.get(place) == before for inputs in trained):
            raise UsageError(
                f"{folder} is not replaced, as {beside} was begun with these data, and the new "
                f"ones are others; give {step.other}, or remove {beside}"
            )


def put_in_place(folder: str, name: str) -> None:
    """Put what was made in :func:`part_of` a folder in its place; an equal folder stays.

    A folder that stays keeps its times, and so is no newer than what was made from it.

    Raises:
        UsageError: nothing was made.
    """
    part, old = part_of(folder), os.path.join(part_of(folder), ".replaced")
    if not os.path.isdir(part):
        raise UsageError(f"{name}: ended without making {part}")
    if os.path.isdir(folder) and _equal(filecmp.dircmp(part, folder, hide=[])):
        shutil.rmtree(part)
    elif os.path.lexists(folder):  # half a folder would not be known as a recipe's own
        os.rename(folder, old)
        os.rename(part, folder)
        shutil.rmtree(os.path.join(folder, ".replaced"))
    else:
        os.makedirs(os.path.dirname(folder) or ".", exist_ok=True)
        os.rename(part, folder)
    with contextlib.suppress(OSError):  # others are at work there
        os.rmdir(os.path.dirname(part))


def _equal(both: "filecmp.dircmp[str]") -> bool:
    """Whether two folders hold the same, but for logs and a lock."""
    alone = [n for n in both.left_only + both.right_only if not n.endswith((".log", ".lock"))]
    files = [name for name in both.common_files if not name.endswith(".log")]
    _, differ, errors = filecmp.cmpfiles(both.left, both.right, files, shallow=False)
    return not (alone or differ or errors or both.common_funny) and all(
        map(_equal, both.subdirs.values())
    )


def finish(step: Step, content: Mapping[str, Any]) -> None:
    """Check that the outputs of a step are there, and write its marker.

    Raises:
        UsageError: the commands have ended without making an output.
    """
    for place in step.made:
        if not os.path.exists(place):
            raise UsageError(f"{step.name}: {step.words[0]} ended without making {place}")
    known: Dict[str, Any] = {
        "name": step.name,
        "command": shlex.join(step.words),
        "inputs": inputs_of(step),
        "made": [os.path.relpath(place, step.folder) for place in step.made],
    }
    write_object(marker_of(step.folder, step.name), {**known, **content})


def run_all(step: Step, descriptors: Sequence[int], variables: Mapping[str, str]) -> None:
    """Run the commands of a step; their output is shown, and kept in its log.

    Raises:
        UsageError: a command fails.
    """
    part = f"{step.log}{PART}"
    if step.log:
        os.makedirs(os.path.dirname(step.log) or ".", exist_ok=True)
        open(part, "wb").close()
    for command in commands_of(step.words):
        print("+", shlex.join(command), file=sys.stderr, flush=True)
        with watched(step.name, step.watch):
            status = run(command, descriptors, variables, part if step.log else "")
        if status == -signal.SIGKILL or status == 128 + signal.SIGKILL:
            raise UsageError(f"{step.name}: {command[0]} was killed; is the memory exhausted?")
        if status:
            raise UsageError(f"{step.name}: {command[0]} stopped with status {status} (see above)")
    if step.log:
        os.replace(part, step.log)
