"""fairseq's command lines on toy data, each in a fresh process that starts within milliseconds.

A server process imports PyTorch and fairseq once and forks for every command.  The plug-in is not
among what it imports: each command loads it through ``--user-dir``, as a user's does.
"""

import json
import logging
import multiprocessing
import os
import re
import runpy
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List, Tuple

import torch

ROOT = Path(__file__).resolve().parents[1]
USER_DIR = ("--user-dir", str(ROOT / "fairseq_posenc"))
TIMEOUT = 300  # seconds; a command that hangs fails its test

_FORKS = multiprocessing.get_context("forkserver")
# the slow imports; PyTorch makes the last when it builds an optimiser
_FORKS.set_forkserver_preload(["fairseq", "fairseq.options", "fairseq.trainer", "torch._dynamo"])


@dataclass(frozen=True)
class Finished:
    """What a command left behind: its exit status, its standard output, its standard error."""

    status: int
    out: str
    err: str

    def entries(self, kind: str) -> List[Dict[str, Any]]:
        """Lines of a ``--log-format json`` log of one *kind*: train_inner, train or valid."""
        # fairseq-train writes "| INFO | train | {…}", Hydra "[train][INFO] - {…}"
        pattern = rf"(?:\| {kind} \||\[{kind}\]\[INFO\] -) (\{{.*\}})$"
        lines = re.findall(pattern, self.out + self.err, flags=re.MULTILINE)
        return [json.loads(line) for line in lines]

    def losses(self) -> Dict[str, float]:
        """Losses in a json log: of every update, and of every epoch in training and validation."""
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
        """The one line in which the plug-in says what the user did wrong."""
        assert self.status != 0, self.out
        assert "Traceback" not in self.out + self.err, self.err
        line = self.err.rstrip("\n").rpartition("\n")[2]
        assert line.startswith("fairseq_posenc: error: "), self.err
        return line


class Command:
    """A command under way in a process of its own.

    Args:
        program: module, or path of a script.
        arguments: its command line.
        stdin: its standard input.
    """

    def __init__(self, program: str, arguments: List[Any], stdin: str = "") -> None:
        self.arguments = [program, *map(str, arguments)]
        self.streams = tempfile.TemporaryDirectory()
        (Path(self.streams.name) / "0").write_text(stdin, encoding="utf-8")
        self.process = _FORKS.Process(target=_become, args=(self.arguments, self.streams.name))
        self.process.start()

    def finish(self) -> Finished:
        """Wait for the command."""
        self.process.join(TIMEOUT)
        if self.process.exitcode is None:
            self.process.kill()
            self.process.join()
        out, err = ((Path(self.streams.name) / n).read_text(encoding="utf-8") for n in "12")
        self.streams.cleanup()
        return Finished(self.process.exitcode, out, err)


def _become(arguments: List[str], streams: str) -> None:
    """Rotation a fork of the server into ``python PROGRAM ARGUMENT...``, with files as streams."""
    for number in range(3):
        mode = os.O_CREAT | os.O_WRONLY if number else os.O_RDONLY
        os.dup2(os.open(os.path.join(streams, str(number)), mode), number)
    sys.stdin = open(0, encoding="utf-8", closefd=False)
    sys.stdout, sys.stderr = (open(n, "w", encoding="utf-8", closefd=False) for n in (1, 2))
    logging.getLogger().handlers.clear()
    multiprocessing.set_start_method(None, force=True)  # the server's way is not a user's
    torch.set_num_threads(1)
    sys.argv = arguments
    execute = runpy.run_path if arguments[0].endswith(".py") else runpy.run_module
    try:
        execute(arguments[0], run_name="__main__")
    finally:
        sys.stdout.flush()


def run(module: str, *arguments: Any, stdin: str = "") -> Finished:
    """Run ``python -m fairseq_cli.MODULE ARGUMENT...``; it may fail."""
    return Command(f"fairseq_cli.{module}", list(arguments), stdin).finish()


def posenc(*arguments: Any) -> Finished:
    """Run ``python -m fairseq_posenc ARGUMENT...``; it may fail."""
    return Command("fairseq_posenc", list(arguments)).finish()


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
SMALL = [
    *("--encoder-layers", "2", "--encoder-embed-dim", "16", "--encoder-ffn-embed-dim", "24"),
    *("--decoder-layers", "2", "--encoder-attention-heads", "2", "--decoder-attention-heads", "2"),
]


def train(data: Path, save_dir: Path, *flags: Any) -> Finished:
    """Train with fairseq-train; *flags* come last, so they override the usual ones."""
    return succeed("train", data, *USER_DIR, "--save-dir", save_dir, *TRAINING, *flags)


SEARCH = ["--cpu", "--beam", "2", "--max-len-b", "10"]


def generate(data: Path, checkpoint: Any, *flags: Any) -> Finished:
    """Translate the test set with fairseq-generate."""
    usual = ["--path", checkpoint, *SEARCH, "--num-workers", "0"]
    return succeed("generate", data, *USER_DIR, *usual, *flags)


def interactive(data: Path, checkpoint: Any, lines: List[str], *flags: Any) -> Finished:
    """Translate *lines* with fairseq-interactive."""
    arguments = [data, *USER_DIR, "--path", checkpoint, *SEARCH, *flags]
    return succeed("interactive", *arguments, stdin="\n".join(lines) + "\n")


def validate(data: Path, checkpoint: Any, *flags: Any) -> Finished:
    """Score the validation set with fairseq-validate."""
    usual = ["--task", "translation", "--path", checkpoint, "--cpu", "--num-workers", "0"]
    return succeed("validate", data, *USER_DIR, *usual, "--log-format", "json", *flags)


def read(checkpoint: Path) -> Tuple[Dict[str, torch.Tensor], Dict[str, Any]]:
    """Parameters and model settings of a checkpoint."""
    # here and not above: the commands' processes load the plug-in by --user-dir alone
    from fairseq_posenc.checkpoints.reading import read_checkpoint

    state = read_checkpoint(checkpoint)
    settings = state["cfg"]["model"]
    # a dictionary for a model with a dataclass, a namespace for its presets
    return state["model"], settings if isinstance(settings, dict) else vars(settings)


def average(folder: Path, *flags: Any) -> Path:
    """Average checkpoints of *folder*."""
    output = folder / "average.pt"
    finished = posenc("average", "--inputs", folder, "--output", output, *flags)
    assert finished.status == 0, finished.err
    return output
