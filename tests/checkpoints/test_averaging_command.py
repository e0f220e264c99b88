"""``fairseq-posenc average``: the checkpoints that it finds, and outputs that it refuses."""

import os

import pytest
import torch
from support.saved_states import state_with

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.checkpoints.reading import read_checkpoint
from fairseq_posenc.cli import main

pytestmark = pytest.mark.journeys


@pytest.fixture
def training(tmp_path):
    """Make the folder of a training with 12 epochs, a save every 5 updates, and 3 best."""
    folder = tmp_path / "run"
    folder.mkdir()

    def keep(name, value, updates, **checkpoint):
        state = state_with({"w": torch.tensor([float(value)])}, updates)
        state["cfg"]["checkpoint"].update(checkpoint)
        torch.save(state, str(folder / name))

    for epoch in range(1, 13):
        keep(f"checkpoint{epoch}.pt", epoch, epoch * 7)
        keep(f"checkpoint_{epoch}_{epoch * 5}.pt", 100 + epoch, epoch * 5)
    for updates, score in enumerate(("4.2501", "10.1250", "4.1000"), start=1):
        keep(f"checkpoint.best_loss_{score}.pt", score, updates)
    keep("checkpoint_best.pt", 1000, 84)
    keep("checkpoint_last.pt", 1000, 84)
    return folder


def run(capsys, *arguments):
    main(["average", *map(str, arguments)])
    return capsys.readouterr().out


@pytest.mark.parametrize(
    "flags, mean",
    [
        (["--num-epoch-checkpoints", 3], 11),
        (["--num-epoch-checkpoints", 3, "--checkpoint-upper-bound", 10], 9),
        (["--num-update-checkpoints", 2], 111.5),
        (["--num-update-checkpoints", 2, "--checkpoint-upper-bound", 24], 103.5),
        (["--num-best-checkpoints", 2], 4.17505),
    ],
)
def test_finds_the_last_checkpoints_by_number(training, capsys, flags, mean):
    output = training / "average.pt"
    printed = run(capsys, "--inputs", training, "--output", output, *flags)
    assert read_checkpoint(output)["model"]["w"].item() == pytest.approx(mean)
    assert printed.count(str(training) + os.sep) == flags[1] + 1  # the inputs and the output


def test_best_is_the_highest_where_the_training_maximised(training, capsys):
    for path in training.glob("checkpoint.best*"):
        state = read_checkpoint(path)
        state["cfg"]["checkpoint"]["maximize_best_checkpoint_metric"] = True
        torch.save(state, str(path))
    output = training / "average.pt"
    run(capsys, "--inputs", training, "--output", output, "--num-best-checkpoints", 2)
    assert read_checkpoint(output)["model"]["w"].item() == pytest.approx((10.125 + 4.2501) / 2)


def test_averages_the_files_that_are_named(training, capsys):
    inputs = [training / "checkpoint2.pt", training / "checkpoint_last.pt"]
    output = training.parent / "average.pt"
    printed = run(capsys, "--inputs", *inputs, "--output", output)
    assert read_checkpoint(output)["model"]["w"].item() == 501
    assert all(str(path) in printed for path in [*inputs, output])


@pytest.mark.parametrize(
    "inputs, flags, says",
    [
        (["run"], ["--num-epoch-checkpoints", 13], "has 12 checkpoints named checkpointN.pt"),
        (
            ["run"],
            ["--num-epoch-checkpoints", 5, "--checkpoint-upper-bound", 4],
            "has 4 checkpoints named checkpointN.pt up to 4",
        ),
        (["run"], ["--num-best-checkpoints", 4], "has 3 checkpoints"),
        (["run"], ["--num-epoch-checkpoints", 0], "--num-epoch-checkpoints 0"),
        (["nowhere"], ["--num-epoch-checkpoints", 2], "nowhere: No such file"),
        (["run"], [], "is a folder"),
        (["run", "run"], ["--num-epoch-checkpoints", 2], "needs one folder"),
        (
            ["run/checkpoint1.pt"],
            ["--checkpoint-upper-bound", 2],
            "--checkpoint-upper-bound 2: needs",
        ),
        (["run/checkpoint1.pt", "run/lost.pt"], [], "lost.pt"),
    ],
)
def test_refuses_and_leaves_the_output_as_it_was(training, monkeypatch, inputs, flags, says):
    monkeypatch.chdir(training.parent)
    with open("average.pt", "w") as file:
        file.write("before")
    arguments = ["--inputs", *inputs, "--output", "average.pt", *map(str, flags)]
    with pytest.raises(UsageError, match=says):
        main(["average", *arguments])
    with open("average.pt") as file:
        assert file.read() == "before"
    assert sorted(os.listdir(".")) == ["average.pt", "run"]


def test_refuses_outputs_that_lose_something(training):
    inputs = [str(training / "checkpoint1.pt")]
    before = (training / "checkpoint1.pt").read_bytes()
    with pytest.raises(UsageError, match="is what the result is made from"):
        output = training / ".." / "run" / "checkpoint1.pt"
        main(["average", "--inputs", *inputs, "--output", str(output)])
    assert (training / "checkpoint1.pt").read_bytes() == before
    with pytest.raises(UsageError, match="there is no folder"):
        main(["average", "--inputs", *inputs, "--output", str(training / "no" / "x.pt")])
