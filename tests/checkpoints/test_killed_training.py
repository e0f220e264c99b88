"""A training that is killed repeatedly ends with the same bits as one that is never killed."""

import os
from pathlib import Path

import pytest
import torch
from support import commands
from support.commands import SMALL, TRAINING, USER_DIR, Command

from fairseq_posenc.checkpoints.reading import read_checkpoint

pytest_plugins = ["support.toy"]
pytestmark = pytest.mark.journeys

SCRIPT = str(Path(__file__).parents[1] / "support" / "killed_training.py")
FLAGS = ["--arch", "roformer_tiny", *SMALL, "--update-epoch-batch-itr", "True"]
FLAGS += ["--save-interval-updates", "1", "--keep-interval-updates", "2"]
FLAGS += ["--keep-last-epochs", "2", "--batch-size", "24", "--max-tokens", "400"]
FLAGS += ["--encoder-layers", "1", "--decoder-layers", "1"]


def train(data, save_dir, kills):
    usual = [*USER_DIR, *TRAINING, *FLAGS, "--max-epoch", 7]  # more than the kills need
    arguments = [data, "--save-dir", save_dir, *map(str, usual)]
    finished = Command(SCRIPT, [7, kills, *arguments]).finish()
    assert finished.status == 0, finished.err[-3000:]
    return finished


def same(one, other):
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other


def progress(state):
    """The state from which training resumes, without elapsed times."""
    extra = state["extra_state"]
    return {
        "parameters": state["model"],
        "optimizer": state["last_optimizer_state"],
        "schedule": state["optimizer_history"][-1],
        "data": extra["train_iterator"],
        "best": (extra["best"], extra["val_loss"]),
        "dictionaries": extra["fairseq_posenc"]["dictionaries"],
    }


def test_killed_anywhere_it_resumes_to_the_same_bits(toy, tmp_path):
    whole = train(toy.separate, tmp_path / "whole", 0)
    parts = train(toy.separate, tmp_path / "parts", 13)  # one kill for each event in MOMENTS
    assert parts.err.count("attempt ") == 14
    names = sorted(os.listdir(tmp_path / "whole"))
    assert sorted(n for n in os.listdir(tmp_path / "parts") if n.endswith(".pt")) == names
    runs = set()
    for name in names:
        states = [read_checkpoint(tmp_path / run / name) for run in ("whole", "parts")]
        one, other = map(progress, states)
        runs.add(states[1]["extra_state"]["fairseq_posenc"]["run"])
        for part in one:
            assert same(one[part], other[part]), (name, part)
    assert len(runs) == 1
    logged, expected = parts.losses(), whole.losses()
    assert logged == {key: expected[key] for key in logged}
    # an epoch's mean is logged after its last checkpoint; a kill between the two loses the mean
    assert {key.split()[0] for key in expected.keys() - logged.keys()} <= {"train"}


def test_a_training_that_is_done_says_so_and_changes_nothing(toy, tmp_path):
    flags = ["--arch", "transformer", *SMALL, "--max-update"]
    assert len(commands.train(toy.separate, tmp_path, *flags, 3).losses()) == 3 + 2
    before = (tmp_path / "checkpoint_last.pt").read_bytes()
    again = commands.train(toy.separate, tmp_path, *flags, 3)
    assert not again.losses() and (tmp_path / "checkpoint_last.pt").read_bytes() == before
    assert "already trained for 3 updates (--max-update 3)" in again.out
    assert "done training in" in again.out
    timed = commands.train(toy.separate, tmp_path, *flags, 4, "--stop-time-hours", "1e-9")
    assert not timed.losses() and "(--stop-time-hours 1e-09)" in timed.out
    assert list(commands.train(toy.separate, tmp_path, *flags, 4).losses())[0] == "update 4"
