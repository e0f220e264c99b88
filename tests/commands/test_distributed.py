"""Two processes train one model over gloo, on one machine and without a GPU."""

import shutil
import socket

import pytest
from support.commands import SMALL, TRAINING, USER_DIR, Command, train
from support.toy_lm import SHAPE

pytest_plugins = ["support.toy", "support.toy_lm"]

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
    arguments = [data, *USER_DIR, "--save-dir", save_dir, *TRAINING, *group, *flags]
    commands = [
        Command("fairseq_cli.train", [*arguments, "--distributed-rank", rank]) for rank in (0, 1)
    ]
    first, second = (command.finish() for command in commands)
    assert (first.status, second.status) == (0, 0), first.err[-2000:] + second.err[-2000:]
    return first


def test_two_processes_train_what_one_trains_on_twice_the_batch(toy, tmp_path):
    alone = train(toy.separate, tmp_path / "one", *ROFORMER, "--update-freq", "2").losses()
    together = train_together(toy.separate, tmp_path / "two", *ROFORMER).losses()
    assert len(together) == 7
    assert together == pytest.approx(alone, abs=2e-3)


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
