"""Two processes train one model over gloo, on one machine and without a GPU."""

import os
import re
import shutil
import signal
import socket

import pytest
from support.commands import SMALL, TIMEOUT, TRAINING, USER_DIR, Command, train
from support.toy_lm import SHAPE
from support.waiting import until

pytest_plugins = ["support.toy", "support.toy_lm"]

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


def test_layers_that_processes_leave_out_need_a_flag(toy, tmp_path, monkeypatch):
    flags = [*ROFORMER, "--encoder-layerdrop", "0.5"]
    for command in list(launched(monkeypatch, toy.separate, tmp_path, *flags)):
        said = command.finish().err
        assert "Traceback" not in said
        assert re.search(r"posenc: error: --find-unused-parameters: give it .*\n$", said)


def test_a_process_says_in_one_line_that_another_has_died(toy, tmp_path):
    flags = [*ROFORMER, "--max-epoch", "1000", "--no-save", "--disable-validation"]
    first, second = started(toy.separate, tmp_path / "two", *flags)
    said = first.streams[1].fileno()
    until(lambda: b"num_updates" in os.pread(said, 1 << 20, 0), "an update", TIMEOUT / 2)
    os.kill(second.fork.pid, signal.SIGKILL)
    assert second.finish().status == -signal.SIGKILL
    lost = first.finish()
    assert lost.status == 1 and "Traceback" not in lost.err
    assert re.search(r"posenc: error: another process of this training has ended.*\n$", lost.err)


def test_two_processes_resume(toy, tmp_path):
    flags = [*ROFORMER, "--max-epoch", "2"]
    whole = train_together(toy.separate, tmp_path / "whole", *flags).losses()
    parts = train_together(toy.separate, tmp_path / "parts", *ROFORMER).losses()
    parts.update(train_together(toy.separate, tmp_path / "parts", *flags).losses())
    assert parts == whole


@pytest.mark.slow
def test_two_processes_resume_with_the_memory_of_both(corpus, tmp_path):
    flags = ["--task", "language_modeling_with_memory", "--tokens-per-sample", "4"]
    flags += ["--arch", "transformer_xl_lm_small", *SHAPE, "--memory-length", "6"]
    flags += ["--batch-size", "4", "--save-interval-updates", "4", "--max-update"]
    whole = train_together(corpus, tmp_path / "whole", *flags, "6").losses()
    rest = tmp_path / "rest"
    rest.mkdir()
    shutil.copy(tmp_path / "whole" / "checkpoint_1_4.pt", rest / "checkpoint_last.pt")
    resumed = train_together(corpus, rest, *flags, "6").losses()
    assert {"update 5", "update 6"} <= resumed.keys() and "update 4" not in resumed
    updates = {key: loss for key, loss in resumed.items() if key.startswith("update")}
    assert updates.items() <= whole.items()
