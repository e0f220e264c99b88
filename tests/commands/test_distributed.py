"""Two processes train one model over gloo, on one machine and without a GPU."""

import pytest
import torch
from support.commands import (
    SMALL,
    TRAINING,
    USER_DIR,
    Command,
    both,
    free_port,
    read,
    train,
    train_together,
)
from support.linear_layers import PERFORMER, projections

pytest_plugins = ["support.toy"]
pytestmark = pytest.mark.journeys

ALIKE = ["--dropout", "0", "--batch-size", "6", "--update-epoch-batch-itr", "True"]
ROFORMER = ["--arch", "roformer_tiny", *SMALL, *ALIKE]


def launched(monkeypatch, data, save_dir, *flags):
    """Start two processes as torchrun does, with their ranks in environment variables."""
    place = {"MASTER_ADDR": "localhost", "MASTER_PORT": free_port(), "WORLD_SIZE": 2}
    arguments = [data, *USER_DIR, "--save-dir", save_dir, *TRAINING, *flags]
    for rank in (0, 1):
        for name, value in {**place, "RANK": rank, "LOCAL_RANK": rank}.items():
            monkeypatch.setenv(name, str(value))
        yield Command("fairseq_cli.train", [*arguments, "--distributed-backend", "gloo"])


def test_two_processes_train_what_one_trains_on_twice_the_batch(toy, tmp_path, monkeypatch):
    """Processes are started as by torchrun, with fairseq's default --ddp-backend, pytorch_ddp."""
    alone = train(toy.separate, tmp_path / "one", *ROFORMER, "--update-freq", "2").losses()
    commands = list(launched(monkeypatch, toy.separate, tmp_path / "two", *ROFORMER))
    together = both(commands).losses()
    assert len(together) == 7
    assert together == pytest.approx(alone, abs=2e-3)


def test_one_process_and_two_draw_the_same_features_and_resume(toy, tmp_path):
    """The training is stopped at an update with a redraw, then at one without, and resumed."""
    flags = [*PERFORMER, "--favor-redraw", "3", *ALIKE]
    alone = [*flags, "--update-freq", "2", "--max-epoch", "2"]
    whole = train(toy.separate, tmp_path / "one", *alone).losses()
    parts = {}
    for updates in ("3", "5", "0"):
        run = train(toy.separate, tmp_path / "parts", *alone, "--max-update", updates).losses()
        parts.update({name: loss for name, loss in run.items() if name.startswith("update")})
    assert parts == {name: loss for name, loss in whole.items() if name.startswith("update")}
    together = train_together(toy.separate, tmp_path / "two", *flags).losses()
    rest = train_together(toy.separate, tmp_path / "two", *flags, "--max-epoch", "2").losses()
    assert "update 1" in together and "update 1" not in rest
    assert {**together, **rest} == pytest.approx(whole, abs=2e-3)
    one, two = (read(tmp_path / name / "checkpoint_last.pt")[0] for name in ("one", "two"))
    assert projections(one) and all(
        torch.equal(value, two[key]) for key, value in projections(one).items()
    )
