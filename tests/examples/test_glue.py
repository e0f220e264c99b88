"""GLUE recipe: the whole chain on made-up tasks and tables."""

import os
import re

import pytest
from support.glue_files import FINETUNE, PREPARE, RECIPE, TASKS, made_up
from support.recipes import bash, commands, flags_of, succeed

pytest_plugins = ["support.pretraining"]


@pytest.fixture(scope="module")
def glue(prepared, tmp_path_factory):
    """Folder with made-up CoLA and STS-B, through prepare.sh into ``data``."""
    folder = tmp_path_factory.mktemp("glue")
    for task in ("CoLA", "STS-B"):
        made_up(folder / "raw", task, {"train": 40, "dev": 11})
    data = prepared / "out" / "data-bin"
    result = succeed(PREPARE, "raw", data, "data", "--workers", "1", cwd=folder)
    assert "CoLA/train.tsv: 40 examples, 0 lines left out" in result.stderr
    return folder


def test_texts_are_treated_like_those_of_the_pre_training(glue, prepared):
    dictionary = (prepared / "out" / "data-bin" / "dict.txt").read_text()
    for part in ("CoLA/input0", "STS-B/input0", "STS-B/input1"):
        assert (glue / "data" / part / "dict.txt").read_text() == dictionary
    text = (glue / "data" / "work" / "CoLA" / "pieces" / "input0" / "train").read_text()
    assert text == text.lower() and "@@" in text
    targets = (glue / "data" / "STS-B" / "label" / "valid.label").read_text().split()
    assert set(targets) <= {"0.0", "0.55", "1.0", "0.84"} and len(targets) == 11
    assert not (glue / "data" / "CoLA" / "input1").exists()


def finetune(glue, pretrained, task, *options):
    few = ("--lr", "5e-3", "--seeds", "3", "--epochs", "2", "--batch", "8", "--cpu", *options)
    given = (f"data/{task}", pretrained / "checkpoint_last.pt", "runs", *few)
    return succeed(FINETUNE, *given, "--", "--num-workers", "0", cwd=glue)


def test_fine_tuning_ends_with_the_table_and_goes_on_where_it_was(glue, pretrained):
    worse = glue / "runs" / "tupe_r" / "CoLA" / "lr1e-3-seed9"
    worse.mkdir(parents=True)
    (worse / "train.log").write_text('{"epoch": 1, "valid_mcc": "-99"}\n')
    (worse / "checkpoint_best.pt").touch()
    result = finetune(glue, pretrained, "CoLA", "--keep-checkpoints")
    table = result.stdout[result.stdout.index("| model |") :]
    assert table.startswith("| model | CoLA (mcc) | average |\n| --- |")
    # what the table says is in the logs, after the best of two epochs
    log = glue / "runs" / "tupe_r" / "CoLA" / "lr5e-3-batch8-seed3" / "train.log"
    found = dict(re.findall(r'"epoch": (\d).* "valid_mcc": "([-\d.]+)"', log.read_text()))
    assert sorted(found) == ["1", "2"]
    assert f"| {max(map(float, found.values())):.2f} |" in table
    assert "position encoding tupe+t5" in result.stdout  # from the checkpoint, nobody said so
    assert (log.parent / "checkpoint_best.pt").exists() and list(worse.glob("*.pt"))
    card = log.parents[1] / "model" / "README.md"
    assert f"mcc {max(map(float, found.values())):.2f} on the validation set" in card.read_text()
    again = finetune(glue, pretrained, "CoLA")
    assert again.stdout == table and "model: already done" in again.stderr
    assert "--models" not in again.stderr
    more = finetune(glue, pretrained, "CoLA", "--models", "2")
    assert "--models 2: only 1 runs have a checkpoint" in more.stderr and more.stdout == table
    assert (log.parent / "checkpoint_best.pt").exists() and not list(worse.glob("*.pt"))


@pytest.mark.slow
def test_every_task_is_prepared(prepared, tmp_path):
    for task, settings in TASKS.items():
        names = [name[: -len(".tsv")] for (name,) in settings.valid.values()]
        made_up(tmp_path / "raw", task, {"train": 12, **dict.fromkeys(names, 6)})
    data = prepared / "out" / "data-bin"
    succeed(PREPARE, "raw", data, "data", "--workers", "1", cwd=tmp_path)
    for task, settings in TASKS.items():
        folder = tmp_path / "data" / task
        assert (folder / "examples").read_text().strip() == "12"
        inputs = sorted(path.name for path in folder.iterdir() if path.is_dir())
        assert inputs == [*settings.inputs, "label"]
    assert (tmp_path / "data" / "MNLI" / "input1" / "valid1.bin").exists()


def test_models_of_an_ensemble_are_packed_and_submitted(tmp_path):
    few = ("--models", "2", "--seeds", "1 2 3", "--lr", "1e-5")
    given = ("glue/RTE", "models/mine/last.pt", "out", "--dry-run", *few)
    found = commands(bash(FINETUNE, *given, cwd=tmp_path))
    runs, names = f"{tmp_path}/out/mine/RTE", ("model", "model-2")
    parts = [words[3] for words in found if words[1:2] == ["pack"]]
    packs = [f"{runs}/{name}" for name in names]
    assert parts == [f"{runs}/.part/{name}" for name in names]
    (tmp_path / "glue" / "RTE" / "test").mkdir(parents=True)
    (tmp_path / "glue" / "RTE" / "test" / "RTE.tsv").touch()
    for folder in packs:
        os.makedirs(folder)
        open(os.path.join(folder, "model.json"), "w").close()
    submit = RECIPE / "submit.sh"
    result = bash(submit, "glue", "out/mine", "sent", "--dry-run", cwd=tmp_path)
    (predict,) = [flags_of(c) for c in commands(result) if c[1:2] == ["predict"]]
    assert [predict["--model"], predict["--ensemble"]] == packs
