"""Two processes train one model over gloo, on one machine and without a GPU."""

import socket

import pytest
from commands import SMALL, TRAINING, USER_DIR, Command, train

pytest_plugins = ["toy"]

ROFORMER = ["--arch", "roformer_tiny", *SMALL, "--dropout", "0", "--batch-size", "6"]
ROFORMER += ["--update-epoch-batch-itr", "True"]


def free_port():
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        return listener.getsockname()[1]


def train_together(data, save_dir, *flags):
    """Train with two processes; returns what the first of them said."""
    group = ["--distributed-world-size", "2", "--distributed-no-spawn"]
    group += ["--distributed-init-method", f"tcp://localhost:{free_port()}"]
    group += ["--distributed-backend", "gloo", "--ddp-backend", "legacy_ddp"]
    arguments = [data, *USER_DIR, "--save-dir", save_dir, *TRAINING, *ROFORMER, *group, *flags]
    commands = [
        Command("fairseq_cli.train", [*arguments, "--distributed-rank", rank]) for rank in (0, 1)
    ]
    first, second = (command.finish() for command in commands)
    assert (first.status, second.status) == (0, 0), first.err[-2000:] + second.err[-2000:]
    return first


def test_two_processes_train_what_one_trains_on_twice_the_batch(toy, tmp_path):
    alone = train(toy.separate, tmp_path / "one", *ROFORMER, "--update-freq", "2").losses()
    together = train_together(toy.separate, tmp_path / "two").losses()
    assert len(together) == 7
    assert together == pytest.approx(alone, abs=2e-3)


def test_two_processes_resume(toy, tmp_path):
    whole = train_together(toy.separate, tmp_path / "whole", "--max-epoch", "2").losses()
    parts = train_together(toy.separate, tmp_path / "parts").losses()
    parts.update(train_together(toy.separate, tmp_path / "parts", "--max-epoch", "2").losses())
    assert parts == whole
