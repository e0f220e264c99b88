"""Averaging checkpoints: the mean, entries that are not averaged, choice of files, refusals."""

import argparse
import fractions
import os
import shutil
from pathlib import Path

import pytest
import torch
from support.saved_states import state_with

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.checkpoints.averaging import average_checkpoints
from fairseq_posenc.checkpoints.reading import read_checkpoint
from fairseq_posenc.cli import main

pytestmark = pytest.mark.properties

TYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
SPECIAL = [0.0, -0.0, 1.0, 1 / 3, -0.1, 6e-8, 6e4, 1e-38]


@pytest.fixture
def save(tmp_path):
    """A function that saves a state under a name and returns the path."""

    def save_one(state, name=None):
        path = str(tmp_path / (name or f"in{len(os.listdir(str(tmp_path)))}.pt"))
        torch.save(state, path)
        return path

    return save_one


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("count", [3, 7])
def test_mean_is_the_exact_mean_rounded_once(save, dtype, count):
    torch.manual_seed(count)
    values = [(torch.randn(50) * 10 ** torch.randn(50)).to(dtype) for _ in range(count)]
    mean = average_checkpoints([save(state_with({"w": value})) for value in values])["model"]["w"]
    columns = zip(*(value.tolist() for value in values))
    exact = [sum(map(fractions.Fraction, column)) / count for column in columns]
    expected = torch.tensor([float(number) for number in exact], dtype=torch.float64)
    if dtype == torch.float64:
        torch.testing.assert_close(mean, expected, rtol=1e-14, atol=1e-15)
    else:
        assert mean.dtype == dtype and torch.equal(mean, expected.to(dtype))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("count", [1, 20])
def test_equal_checkpoints_give_themselves_bit_for_bit(save, dtype, count):
    """This holds even if the sum of the checkpoints' values would be infinite."""
    weight = torch.cat([torch.tensor(SPECIAL), torch.randn(1000)]).to(dtype)
    paths = [save(state_with({"w": weight})) for _ in range(count)]
    mean = average_checkpoints(paths)["model"]["w"]
    assert mean.dtype == dtype and torch.equal(mean, weight)
    assert torch.equal(1 / mean, 1 / weight)  # so that 0 and -0 differ


def test_tied_tensors_stay_one_tensor(save):
    paths = []
    for value in (1.0, 2.0):
        weight = torch.full((100, 100), value)
        paths.append(save(state_with({"a.weight": weight, "b.weight": weight})))
    averaged = average_checkpoints(paths)
    path = save(averaged)
    model = read_checkpoint(path)["model"]
    assert model["a.weight"].data_ptr() == model["b.weight"].data_ptr()
    assert torch.equal(model["a.weight"], torch.full((100, 100), 1.5))
    assert os.path.getsize(path) < 1.5 * 100 * 100 * 4


def test_a_view_of_a_larger_tensor_is_averaged_alone(save):
    base = torch.arange(10000.0)
    paths = [
        save(state_with({"part": (base * n)[2:4], "turned": base.view(2, -1).t()[:2]}))
        for n in (1, 3)
    ]
    model = average_checkpoints(paths)["model"]
    assert model["part"].tolist() == [4.0, 6.0]
    assert os.path.getsize(save({"model": model})) < 10000
    assert model["turned"].tolist() == [[0.0, 5000.0], [1.0, 5001.0]]


def test_everything_else_is_of_the_newest_and_no_optimiser_state(save):
    paths = [save(state_with({"w": torch.ones(1)}, updates)) for updates in (20, 30, 10)]
    state = average_checkpoints(paths)
    assert state["optimizer_history"][-1]["num_updates"] == 30
    assert state["task_state"] == {"updates": 30}
    assert state["extra_state"]["train_iterator"]["epoch"] == 30
    assert state["cfg"]["model"].position_encoding == "rotary"
    assert "last_optimizer_state" not in state


FIRST = {"w": torch.ones(2), "version": torch.tensor([3]), "tied": torch.ones(2)}
FIRST["tied"] = FIRST["w"]


@pytest.mark.parametrize(
    "change, flags, says",
    [
        ({"extra": torch.ones(1)}, {}, "parameter extra is torch.float32 .*, but absent"),
        ({"w": None}, {}, "parameter w is absent"),
        ({"w": torch.ones(3)}, {}, r"parameter w is torch.float32 of shape \[3\], but .* \[2\]"),
        ({"w": torch.ones(2).half()}, {}, "parameter w is torch.float16"),
        ({"version": torch.tensor([4])}, {}, "version is not the same"),
        ({"tied": torch.zeros(2)}, {}, "tied and w differ"),
        ({}, {"arch": "roformer_base"}, "setting arch is 'roformer_base', but 'roformer_tiny'"),
    ],
)
def test_refuses_what_does_not_belong_together(save, change, flags, says):
    first = save(state_with(FIRST), "first.pt")
    other = {key: value for key, value in {**FIRST, **change}.items() if value is not None}
    second = save(state_with(other, **flags), "second.pt")
    with pytest.raises(UsageError, match=says) as error:
        average_checkpoints([first, second])
    assert second in str(error.value) and "\n" not in str(error.value)


def test_settings_of_a_dataclass_and_of_an_old_file(save):
    for make in (
        lambda base: {
            "cfg": {"model": {"_name": "lm", "rotary_base": base}, "task": {"data": str(base)}}
        },
        lambda base: {"args": argparse.Namespace(arch="lm", rotary_base=base)},
    ):
        paths = [
            save({"model": {"w": torch.ones(1)}, "n": n, **make(base)})
            for n, base in enumerate((1e4, 1e4, 1e5))
        ]
        assert average_checkpoints(paths[:2])["model"]["w"].item() == 1
        with pytest.raises(UsageError, match="setting rotary_base is 100000.0, but 10000.0"):
            average_checkpoints(paths)


def test_tensors_that_must_be_identical_are_compared(save):
    models = [
        {"attn.projection": torch.tensor([n]), "attn.feature_map.projection": torch.ones(1) * drawn}
        for n, drawn in ((1.0, 1.0), (2.0, 1.0), (1.0, 2.0))
    ]
    paths = [save(state_with(model)) for model in models]
    averaged = average_checkpoints(paths[:2])["model"]
    assert averaged["attn.projection"].item() == 1.5
    assert averaged["attn.feature_map.projection"].item() == 1.0
    message = "attn.feature_map.projection is not the same .*were redrawn.*--favor-redraw 0"
    with pytest.raises(UsageError, match=message):
        average_checkpoints(paths[1:])


def of_run(state, identifier=None, seed=0):
    state["extra_state"]["fairseq_posenc"] = {"run": identifier} if identifier else None
    state["cfg"]["common"] = {"seed": seed}
    return state


def test_one_checkpoint_counts_once(save, tmp_path):
    path = save(state_with({"w": torch.ones(1)}), "checkpoint2.pt")
    os.link(path, str(tmp_path / "checkpoint_best.pt"))
    shutil.copyfile(path, str(tmp_path / "checkpoint_last.pt"))
    for other in ("checkpoint2.pt", "checkpoint_best.pt", "checkpoint_last.pt"):
        with pytest.raises(UsageError, match=r"same .* as .*checkpoint2.pt \(update .*; give each"):
            average_checkpoints([path, str(tmp_path / other)])
    imported = save({**state_with({"w": torch.ones(1)}), "optimizer_history": [{}]})
    with pytest.raises(UsageError, match=f"is the same checkpoint as {imported} .*; give each"):
        average_checkpoints([imported, imported])


@pytest.mark.parametrize(
    "signs, says",
    [
        ([{"identifier": "a"}, {"identifier": "b"}], "run b instead of a"),
        ([{"seed": 0}, {"seed": 1}], "--seed 1 instead of 0"),
        ([{"identifier": "a", "seed": 0}, {"identifier": "a", "seed": 1}], None),  # resumed
    ],
)
def test_checkpoints_of_two_trainings_are_refused(save, signs, says):
    states = [state_with({"w": torch.ones(1)}, save_dir=f"{n}") for n in (0, 1)]
    paths = [save(of_run(state, **sign)) for state, sign in zip(states, signs)]
    if says is None:
        assert average_checkpoints(paths)["extra_state"]["fairseq_posenc"] == {"run": "a"}
        return
    with pytest.raises(UsageError, match=f"is not of the same training run as .*{says}"):
        average_checkpoints(paths)


# --- the command


@pytest.fixture
def training(tmp_path):
    """A training's folder with 12 epoch checkpoints, 12 update checkpoints, and the 3 best."""
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


@pytest.mark.parametrize(
    "inputs, flags, mean",
    [
        ([""], ["--num-epoch-checkpoints", 3], 11),
        ([""], ["--num-epoch-checkpoints", 3, "--checkpoint-upper-bound", 10], 9),
        ([""], ["--num-update-checkpoints", 2], 111.5),
        ([""], ["--num-update-checkpoints", 2, "--checkpoint-upper-bound", 24], 103.5),
        ([""], ["--num-best-checkpoints", 2], 4.17505),
        (["checkpoint2.pt", "checkpoint_last.pt"], [], 501),
    ],
)
@pytest.mark.journeys
def test_averages_files_that_are_named_or_the_last_by_number(training, capsys, inputs, flags, mean):
    inputs, output = [training / name for name in inputs], training / "average.pt"
    main(["average", *map(str, ["--inputs", *inputs, "--output", output, *flags])])
    printed = capsys.readouterr().out
    assert read_checkpoint(output)["model"]["w"].item() == pytest.approx(mean)
    count = flags[1] if flags else len(inputs)
    assert printed.count(str(training) + os.sep) == count + 1  # the inputs and the output


@pytest.mark.journeys
def test_best_is_the_highest_where_the_training_maximised(training):
    for path in training.glob("checkpoint.best*"):
        state = read_checkpoint(path)
        state["cfg"]["checkpoint"]["maximize_best_checkpoint_metric"] = True
        torch.save(state, str(path))
    output = training / "average.pt"
    best = ["--num-best-checkpoints", "2"]
    main(["average", "--inputs", str(training), "--output", str(output), *best])
    assert read_checkpoint(output)["model"]["w"].item() == pytest.approx((10.125 + 4.2501) / 2)


@pytest.mark.parametrize(
    "inputs, flags, says",
    [
        (["run"], ["--num-epoch-checkpoints", 13], "has 12 checkpoints named checkpointN.pt"),
        (["run"], ["--num-epoch-checkpoints", 5, "--checkpoint-upper-bound", 4], "4 .* up to 4"),
        (["run"], ["--num-best-checkpoints", 4], "has 3 checkpoints"),
        (["run"], ["--num-epoch-checkpoints", 0], "--num-epoch-checkpoints 0"),
        (["nowhere"], ["--num-epoch-checkpoints", 2], "nowhere: No such file"),
        (["run"], [], "is a folder"),
        (["run", "run"], ["--num-epoch-checkpoints", 2], "needs one folder"),
        (["run/checkpoint1.pt"], ["--checkpoint-upper-bound", 2], "-upper-bound 2: needs"),
        (["run/checkpoint1.pt", "run/lost.pt"], [], "lost.pt"),
    ],
)
@pytest.mark.journeys
def test_refuses_and_leaves_the_output_as_it_was(training, monkeypatch, inputs, flags, says):
    monkeypatch.chdir(training.parent)
    Path("average.pt").write_text("before")
    arguments = ["--inputs", *inputs, "--output", "average.pt", *map(str, flags)]
    with pytest.raises(UsageError, match=says):
        main(["average", *arguments])
    assert Path("average.pt").read_text() == "before"
    assert sorted(os.listdir(".")) == ["average.pt", "run"]
