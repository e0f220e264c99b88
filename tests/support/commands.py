"""Runs fairseq's commands on toy data; commands with the plug-in run in the tests' process.

Other commands, and commands that a test stops or sends signals to, run in processes of their own,
which start within milliseconds: they are forks of a server (see preloaded.py).
"""

import contextlib
import functools
import importlib
import io
import json
import logging
import os
import re
import shlex
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List, Tuple
from unittest import mock

import pytest
import torch
from support import preloaded

ROOT = Path(__file__).resolve().parents[2]
USER_DIR = ("--user-dir", str(ROOT / "fairseq_posenc"))
TIMEOUT = 300  # seconds; a command that hangs fails its test
_folder = tempfile.TemporaryDirectory(prefix="fairseq_posenc-")


@functools.lru_cache(maxsize=None)
def server() -> str:
    """Start the servers that fork commands; returns the folder that has their sockets."""
    # variables that the first test sets for the plug-in are not meant for the other tests
    usual = {k: v for k, v in os.environ.items() if not k.startswith("FAIRSEQ_POSENC")}
    with contextlib.ExitStack() as stack:
        listeners = [stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(2)]
        for listener, name in zip(listeners, ("plain", "loaded")):
            listener.bind(f"{_folder.name}/{name}")
            listener.listen(64)
        log = stack.enter_context(open(f"{_folder.name}/log", "w"))
        numbers = [listener.fileno() for listener in listeners]
        server.process = subprocess.Popen(  # kept: closing their standard input ends the servers
            [sys.executable, preloaded.__file__, "serve", *map(str, numbers), USER_DIR[1]],
            env={**usual, "OMP_NUM_THREADS": "1"},
            pass_fds=numbers,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    return _folder.name


@functools.lru_cache(maxsize=None)
def programs() -> str:
    """A folder with replacements for ``python`` and fairseq's commands, which just start faster."""
    start = [sys.executable, "-IS", preloaded.__file__, sys.executable, server()]
    installed = Path(sys.executable).parent.glob("fairseq-*")
    folder = Path(_folder.name) / "bin"
    folder.mkdir()
    for name, more in {"python": [], **{path.name: [str(path)] for path in installed}}.items():
        line = " ".join(map(shlex.quote, [*start, *more]))
        (folder / name).write_text(f'#!/bin/sh\nexec {line} "$@"\n', encoding="utf-8")
        (folder / name).chmod(0o755)
    return str(folder)


@dataclass(frozen=True)
class Finished:
    """The exit status, standard output and standard error of a command that has ended."""

    status: int
    out: str
    err: str

    def entries(self, kind: str) -> List[Dict[str, Any]]:
        """Entries of one *kind* (train_inner, train or valid) in a ``--log-format json`` log."""
        # fairseq-train writes "| INFO | train | {…}", Hydra "[train][INFO] - {…}"
        pattern = rf"(?:\| {kind} \||\[{kind}\]\[INFO\] -) (\{{.*\}})$"
        lines = re.findall(pattern, self.out + self.err, flags=re.MULTILINE)
        return [json.loads(line) for line in lines]

    def losses(self) -> Dict[str, float]:
        """Losses in a json log: of each update, and of each epoch in training and validation."""
        found = {f"update {e['num_updates']}": e["loss"] for e in self.entries("train_inner")}
        for kind in ("train", "valid"):
            found.update({f"{kind} {e['epoch']}": e[f"{kind}_loss"] for e in self.entries(kind)})
        return {key: float(value) for key, value in found.items()}

    def hypotheses(self) -> Dict[int, List[Tuple[float, str]]]:
        """Scores and texts of fairseq-generate or fairseq-interactive, by sentence number."""
        found: Dict[int, List[Tuple[float, str]]] = {}
        for number, score, text in re.findall(r"^H-(\d+)\t(\S+)\t(.*)$", self.out, re.MULTILINE):
            found.setdefault(int(number), []).append((float(score), text))
        return found

    def message(self) -> str:
        """The plug-in's error message: the last line of standard error, without a traceback."""
        assert self.status != 0, self.out
        assert "Traceback" not in self.out + self.err, self.err
        line = self.err.rstrip("\n").rpartition("\n")[2]
        assert line.startswith("fairseq_posenc: error: "), self.err
        return line


class Command:
    """A command that runs in its own process; *program* is a module or the path of a script."""

    def __init__(self, program: str, arguments: List[Any], stdin: str = "") -> None:
        words = [program] if program.endswith(".py") else ["-m", program]
        self.streams = [tempfile.TemporaryFile() for _ in range(3)]
        self.streams[0].write(stdin.encode())
        self.streams[0].seek(0)
        numbers = [stream.fileno() for stream in self.streams]
        texts = [*words, *map(str, arguments)]
        self.fork = preloaded.Fork(preloaded.address_for(server(), texts), texts, numbers)

    def finish(self) -> Finished:
        """Wait for the command to end."""
        status = self.fork.wait(TIMEOUT)
        texts = []
        for stream in self.streams:
            with stream:
                stream.seek(0)
                texts.append(stream.read().decode())
        return Finished(status, *texts[1:])


def in_this_process(module: str, function: str, arguments: List[Any], stdin: str) -> Finished:
    """Call the function of a command, which returns an exit status or None, and may fail."""
    from fairseq import checkpoint_utils
    from fairseq_cli import train as trainings

    from fairseq_posenc.encodings.rotary_frequencies import warn_of_length

    # remove state that fairseq and the plug-in keep until their process ends
    warn_of_length.cache_clear()
    for kept in (checkpoint_utils.save_checkpoint, trainings.should_stop_early):
        for name in {"best", "num_runs"} & set(vars(kept)):
            delattr(kept, name)
    call = getattr(importlib.import_module(module), function)
    out, err, root = io.StringIO(), io.StringIO(), logging.getLogger()
    handler = logging.StreamHandler(out)
    handler.setFormatter(logging.Formatter("%(asctime)s | %(levelname)s | %(name)s | %(message)s"))
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(sys, "argv", [module, *map(str, arguments)]))
        stack.enter_context(mock.patch.object(sys, "stdin", io.StringIO(stdin)))
        stack.enter_context(mock.patch.object(sys, "excepthook", sys.__excepthook__))
        stack.enter_context(mock.patch.object(root, "handlers", [handler]))
        stack.enter_context(mock.patch.object(root, "level", logging.INFO))
        stack.callback(logging.disable, root.manager.disable)
        logging.disable(logging.NOTSET)
        stack.enter_context(contextlib.redirect_stdout(out))
        stack.enter_context(contextlib.redirect_stderr(err))
        try:
            status = call()
        except SystemExit as end:
            status = end.code
        except Exception:
            sys.excepthook(*sys.exc_info())
            status = 1
        if isinstance(status, str):
            print(status, file=sys.stderr)
            status = 1
    return Finished(status or 0, out.getvalue(), err.getvalue())


def run(module: str, *arguments: Any, stdin: str = "") -> Finished:
    """Run ``python -m fairseq_cli.MODULE ARGUMENT...``, which may fail."""
    # the plug-in reads its environment variables only when it is loaded
    here = USER_DIR[1] in arguments and not any("FAIRSEQ_POSENC" in name for name in os.environ)
    if here or module == "preprocess":
        return in_this_process(f"fairseq_cli.{module}", "cli_main", list(arguments), stdin)
    return Command(f"fairseq_cli.{module}", list(arguments), stdin).finish()


def posenc(*arguments: Any) -> Finished:
    """Run ``python -m fairseq_posenc ARGUMENT...``, which may fail."""
    if "--user-dir" in arguments:  # the folder's registrations would stay in this process
        return Command("fairseq_posenc", list(arguments)).finish()
    return in_this_process("fairseq_posenc.cli", "main", list(arguments), "")


def succeed(module: str, *arguments: Any, stdin: str = "") -> Finished:
    """Run ``python -m fairseq_cli.MODULE ARGUMENT...``, which must not fail."""
    finished = run(module, *arguments, stdin=stdin)
    last = "\n".join([line[:300] for line in (finished.out + finished.err).splitlines()][-40:])
    assert finished.status == 0, f"{module} {' '.join(map(str, arguments))}\n{last}"
    return finished


TRAINING = [
    *("--cpu", "--num-workers", "0", "--seed", "1", "--log-format", "json", "--log-interval", "1"),
    *("--optimizer", "adam", "--lr", "0.01", "--max-tokens", "160", "--max-epoch", "1"),
]


def shape(layers: int, channels: int, inner: int, heads: int, *sides: str) -> List[str]:
    """Flags for the sizes of the *sides*: ``encoder``, ``decoder`` or, by default, both."""
    sizes = {"layers": layers, "embed-dim": channels, "ffn-embed-dim": inner}
    sizes["attention-heads"] = heads
    both = sides or ("encoder", "decoder")
    return [word for s in both for n, size in sizes.items() for word in (f"--{s}-{n}", str(size))]


SMALL = [*shape(2, 16, 24, 2, "encoder"), "--decoder-layers", "2", "--decoder-attention-heads", "2"]
# dropout masks depend on the tensors' layout: stock's have tokens first, ours the batch
NO_DROPOUT = ["--dropout", "0"]


def train(data: Path, save_dir: Path, *flags: Any) -> Finished:
    """Train with fairseq-train; *flags* come last, so they override the usual ones."""
    return succeed("train", data, *USER_DIR, "--save-dir", save_dir, *TRAINING, *flags)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        return listener.getsockname()[1]


def both(commands: List[Command]) -> Finished:
    """Wait for two commands, which must not fail; returns the output of the first."""
    first, second = [command.finish() for command in commands]
    assert (first.status, second.status) == (0, 0), first.err[-2000:] + second.err[-2000:]
    return first


def train_together(data: Path, save_dir: Path, *flags: Any) -> Finished:
    """Train one model with two processes."""
    group = ["--distributed-world-size", "2", "--distributed-no-spawn"]
    group += ["--distributed-init-method", f"tcp://localhost:{free_port()}"]
    group += ["--distributed-backend", "gloo", "--ddp-backend", "legacy_ddp"]
    arguments = [data, *USER_DIR, "--save-dir", save_dir, *TRAINING, *group, *flags]
    ranks = ([*arguments, "--distributed-rank", rank] for rank in (0, 1))
    return both([Command("fairseq_cli.train", each) for each in ranks])


def refusal(data: Path, save_dir: Path, *flags: Any) -> str:
    """The one-line error message with which fairseq-train refuses to start."""
    return run("train", data, *USER_DIR, "--save-dir", save_dir, *TRAINING, *flags).message()


SEARCH = ["--cpu", "--beam", "2", "--max-len-b", "10"]


def generate(data: Path, checkpoint: Any, *flags: Any) -> Finished:
    """Translate the test set with fairseq-generate."""
    usual = ["--path", checkpoint, *SEARCH, "--num-workers", "0"]
    return succeed("generate", data, *USER_DIR, *usual, *flags)


def interactive(data: Path, checkpoint: Any, lines: List[str], *flags: Any) -> Finished:
    """Translate *lines* with fairseq-interactive."""
    arguments = [data, *USER_DIR, "--path", checkpoint, *SEARCH, *flags]
    return succeed("interactive", *arguments, stdin="\n".join(lines) + "\n")


def check_same(found: Dict[int, Any], expected: Dict[int, Any]) -> None:
    """Assert that two searches found the same texts with the same scores."""
    assert found.keys() == expected.keys()
    for number, hypotheses in expected.items():
        for (score, text), (other, same) in zip(hypotheses, found[number]):
            assert text == same
            assert score == pytest.approx(other, abs=1e-4)


def validate(data: Path, checkpoint: Any, *flags: Any) -> Finished:
    """Score the validation set with fairseq-validate."""
    usual = ["--task", "translation", "--path", checkpoint, "--cpu", "--num-workers", "0"]
    return succeed("validate", data, *USER_DIR, *usual, "--log-format", "json", *flags)


def read(checkpoint: Path) -> Tuple[Dict[str, torch.Tensor], Dict[str, Any]]:
    """Parameters and model settings of a checkpoint."""
    # not imported at the top: processes of commands must load the plug-in by --user-dir alone
    from fairseq_posenc.checkpoints.reading import read_checkpoint

    state = read_checkpoint(checkpoint)
    settings = state["cfg"]["model"]
    # a dictionary if --arch is a model with a dataclass, a namespace if it is a preset
    return state["model"], settings if isinstance(settings, dict) else vars(settings)


def pruned(checkpoint: Path, keep: Dict[str, List[int]]) -> Path:
    """Write a copy of a checkpoint with fewer layers: *keep* lists the layer numbers per side."""
    from fairseq_posenc.checkpoints.reading import read_checkpoint

    state = read_checkpoint(checkpoint)
    for side, kept in keep.items():
        state["cfg"]["model"][f"{side}_layers"] = len(kept)
        for key in [key for key in state["model"] if key.startswith(f"{side}.layers.")]:
            value, (_, _, layer, name) = state["model"].pop(key), key.split(".", 3)
            if int(layer) in kept:
                state["model"][f"{side}.layers.{kept.index(int(layer))}.{name}"] = value
    torch.save(state, checkpoint.with_name("pruned.pt"))
    return checkpoint.with_name("pruned.pt")


def average(folder: Path, *flags: Any) -> Path:
    """Average the checkpoints in *folder*; returns the path of the average."""
    output = folder / "average.pt"
    finished = posenc("average", "--inputs", folder, "--output", output, *flags)
    assert finished.status == 0, finished.err
    return output
