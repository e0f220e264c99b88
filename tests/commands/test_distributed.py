"""Two processes train one model over gloo, on one machine and without a GPU."""

import socket

import pytest
from support.commands import SMALL, TRAINING, USER_DIR, Command, train

pytest_plugins = ["support.toy", "support.toy_lm"]
pytestmark = pytest.mark.journeys

ROFORMER = ["--arch", "roformer_tiny", *SMALL, "--dropout", "0", "--batch-size", "6"]
ROFORMER += ["--update-epoch-batch-itr", "True"]


def free_port():
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        return listener.getsockname()[1]


def started(data, save_dir, *flags):
    """Start two processes that train one model."""
    group = ["--distributed-world-size", "2", "--distributed-no-spawn"]
    group += ["--distributed-init-method", f"tcp://localhost:{free_port()}"]
    group += ["--distributed-backend", "gloo", "--ddp-backend", "legacy_ddp"]
    arguments = [data, *USER_DIR, "--save-dir", save_dir, *TRAINING, *group, *flags]
    return [
        Command("fairseq_cli.train", [*arguments, "--distributed-rank", rank]) for rank in (0, 1)
    ]


def launched(monkeypatch, data, save_dir, *flags):
    """Start two processes as torchrun does; they are told of each other by the environment."""
    place = {"MASTER_ADDR": "localhost", "MASTER_PORT": free_port(), "WORLD_SIZE": 2}
    arguments = [data, *USER_DIR, "--save-dir", save_dir, *TRAINING, *flags]
    for rank in (0, 1):
        for name, value in {**place, "RANK": rank, "LOCAL_RANK": rank}.items():
            monkeypatch.setenv(name, str(value))
        yield Command("fairseq_cli.train", [*arguments, "--distributed-backend", "gloo"])


def finished(commands):
    """What the first of two processes said."""
    first, second = [command.finish() for command in commands]
    assert (first.status, second.status) == (0, 0), first.err[-2000:] + second.err[-2000:]
    return first


def train_together(*arguments):
    return finished(started(*arguments))


def test_two_processes_train_what_one_trains_on_twice_the_batch(toy, tmp_path, monkeypatch):
    """Two processes as torchrun starts them, with pytorch_ddp, the default."""
    alone = train(toy.separate, tmp_path / "one", *ROFORMER, "--update-freq", "2").losses()
    commands = list(launched(monkeypatch, toy.separate, tmp_path / "two", *ROFORMER))
    together = finished(commands).losses()
    assert len(together) == 7
    assert together == pytest.approx(alone, abs=2e-3)


def test_two_processes_resume(toy, tmp_path):
    flags = [*ROFORMER, "--max-epoch", "2"]
    whole = train_together(toy.separate, tmp_path / "whole", *flags).losses()
    parts = train_together(toy.separate, tmp_path / "parts", *ROFORMER).losses()
    parts.update(train_together(toy.separate, tmp_path / "parts", *flags).losses())
    assert parts == whole
