"""Helpers for tests of the recipes: run their scripts and read their output."""

import importlib
import io
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from types import ModuleType

import pytest
from support.commands import USER_DIR, programs

for _module in ("sacremoses", "subword_nmt", "sacrebleu"):
    pytest.importorskip(_module, reason=f"the recipes need {_module}")

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
WMT14 = EXAMPLES / "wmt14_en_de"


def environment():
    """Environment variables for a script: this Python first in PATH, no Slurm job, one thread."""
    path = [programs(), os.path.dirname(sys.executable), os.environ["PATH"]]
    outside = {name: text for name, text in os.environ.items() if not name.startswith("SLURM_")}
    return {**outside, "PATH": os.pathsep.join(path), "OMP_NUM_THREADS": "1"}


def recipe_module(folder: str, name: str) -> ModuleType:
    """Import a module of *folder* in examples/ as Python does when it runs a script there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(EXAMPLES / "common")
        patch.syspath_prepend(EXAMPLES / folder)
        return importlib.import_module(name)


def bash(script, *arguments, cwd, timeout=300, **variables):
    """Run a script; *script* is its absolute path, or its name in the WMT14 recipe."""
    return subprocess.run(
        ["bash", str(WMT14 / script), *map(str, arguments)],
        cwd=cwd,
        env={**environment(), **variables},
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def succeed(script, *arguments, cwd, **more):
    """Run a script as :func:`bash` does; the script must not fail."""
    result = bash(script, *arguments, cwd=cwd, **more)
    assert result.returncode == 0, result.stdout[-1000:] + result.stderr[-3000:]
    return result


def error_of(function, *args):
    """The one-line error message with which *function* exits."""
    with pytest.raises(SystemExit) as caught:
        function(*args)
    message = str(caught.value)
    assert "error" in message and "\n" not in message
    return message


def flags_of(command):
    """Flags of a command and the values after them; a repeated flag keeps its last value."""
    flags = {}
    for word, following in zip(command, [*command[1:], "--"]):
        if word.startswith("--"):
            flags[word] = None if following.startswith("--") else following
    return flags


def stand_ins(folder, bodies):
    """Write a shell script for each name in *bodies*; returns the folder, to be put in PATH."""
    folder.mkdir(exist_ok=True)
    for name, body in bodies.items():
        (folder / name).write_text(f"#!/usr/bin/env bash\n{body}\n")
        (folder / name).chmod(0o755)
    return str(folder)


def stub_arguments(script, *arguments, cwd, posenc=f"echo {USER_DIR[1]}", **variables):
    """Arguments of a script's fairseq-train calls; shell code *posenc* replaces fairseq-posenc."""
    calls = cwd / "calls"
    calls.write_text("")
    train = 'printf "%s\\n" "$@" . >>"$CALLS"'
    programs = stand_ins(cwd / "stubs", {"fairseq-train": train, "fairseq-posenc": posenc})
    path = f"{programs}:/usr/bin:/bin"
    succeed(script, *arguments, cwd=cwd, PATH=path, CALLS=str(calls), **variables)
    return [call.split("\n") for call in calls.read_text().split("\n.\n")[:-1]]


def made_up_run(folder, name, values):
    """Write the log of a run; *values* maps names of scores to the values after each epoch."""
    (folder / name).mkdir(parents=True)
    lines = ["INFO | something else"]
    for epoch, after in enumerate(zip(*values.values()), 1):
        entry = {"epoch": epoch, **dict(zip(values, map(str, after)))}
        lines.append(f"x | INFO | valid | {json.dumps(entry)}")
    write(folder / name / "train.log", lines)


def archive(files):
    """The bytes of a .tgz; *files* maps names to contents."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return stream.getvalue()


def write(path, lines):
    """Write *lines*, each ended by a line feed; returns the path."""
    path.write_bytes("".join(line + "\n" for line in lines).encode())
    return str(path)


def run_page(blocks, folder, **variables):
    """Run the code blocks of a page, in order, in a folder; returns their standard output."""
    found = subprocess.run(
        ["bash", "-euc", "".join(blocks)],
        cwd=folder,
        env={**environment(), **variables},
        capture_output=True,
        text=True,
        timeout=1800,
    )
    assert found.returncode == 0, found.stderr[-3000:]
    return found.stdout
