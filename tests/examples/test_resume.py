"""Trainings of the recipes that are resumed end as if they had not been interrupted."""

import os
import re
import shlex

import pytest
from support.commands import ROOT, SMALL, TRAINING, USER_DIR, read
from support.recipes import EXAMPLES, assert_error, bash, commands, flags_of, recipe_module, shell

pytest_plugins = ["support.toy"]

last_checkpoint = recipe_module("common", "last_checkpoint")


def weights(folder):
    return read(folder / "checkpoint_last.pt")[0]


def are_equal(one, two):
    return all((value == two[name]).all() for name, value in one.items())


@pytest.fixture
def recipe(toy, tmp_path):
    """Train a small model as the recipes do, in a folder, for a number of epochs."""

    def run(folder, epochs, *flags):
        words = [*USER_DIR, *TRAINING, "--arch", "transformer", *SMALL, *flags]
        # several batches of different lengths, whose order differs by epoch
        words += ["--max-epoch", epochs, "--max-tokens", 80, "--lr", 0.003]
        line = shlex.join(map(str, [folder, toy.separate, *words]))
        return shell(f"train_model {line}", tmp_path)

    return run


def test_a_resumed_training_equals_the_uninterrupted_one_bit_for_bit(recipe, tmp_path):
    whole = recipe("whole", 3)
    assert whole.returncode == 0, whole.stderr[-2000:]
    for epochs in (1, 2):
        assert recipe("resumed", epochs).returncode == 0
    # killed while fairseq copied the last checkpoint, and before while it wrote the second
    folder = tmp_path / "resumed"
    for name in ("checkpoint_last.pt", "checkpoint2.pt"):
        os.truncate(folder / name, (folder / name).stat().st_size // 2)
    half = (folder / "checkpoint_last.pt").read_bytes()
    (folder / "checkpoint9.pt.tmp").write_bytes(b"half")
    resumed = recipe("resumed", 3)
    assert resumed.returncode == 0, resumed.stderr[-2000:]
    assert resumed.stderr.count("checkpoint_last.damaged.pt; going on from checkpoint1.pt") == 1
    assert (folder / "checkpoint_last.damaged.pt").read_bytes() == half
    assert not (folder / "checkpoint9.pt.tmp").exists()
    assert are_equal(weights(tmp_path / "whole"), weights(folder))


def test_the_newest_whole_checkpoint_is_found(tmp_path):
    names = ["checkpoint1.pt", "checkpoint_1_5.pt", "checkpoint_2_900.pt", "checkpoint10.pt"]
    names += ["checkpoint_10_4000.pt", "checkpoint_11_4100.pt"]
    for name in [*names, "checkpoint_best.pt", "checkpoint.best_loss_1.pt", "average5.pt"]:
        (tmp_path / name).touch()
    assert list(last_checkpoint.numbered(str(tmp_path))) == [
        *("checkpoint_11_4100.pt", "checkpoint10.pt", "checkpoint_10_4000.pt"),
        *("checkpoint_2_900.pt", "checkpoint1.pt", "checkpoint_1_5.pt"),
    ]
    # nothing to do, and nothing that can be done
    last_checkpoint.main([str(tmp_path)])
    (tmp_path / "checkpoint_last.pt").write_bytes(b"half")
    last_checkpoint.main([str(tmp_path)])
    assert (tmp_path / "checkpoint_last.pt").read_bytes() == b"half"
    assert not (tmp_path / "checkpoint_last.damaged.pt").exists()


TRAININGS = {
    "multi30k/run.sh": ["data", "out", "transformer"],
    "translation/train.sh": ["transformer", "data", "--cpu"],
    "translation/run.sh": [
        "texts",
        "out",
        "transformer",
        *"--source-lang a --target-lang b".split(),
    ],
    "wmt14_en_de/train.sh": ["transformer", "data", "--cpu"],
    "bert_pretraining/train.sh": ["roformer", "data", "--cpu"],
    "clue_pretraining/train.sh": ["gau", "data", "--cpu"],
    "language_model/train.sh": ["rotary", "data", "--cpu"],
    "language_model/compare.sh": ["data", "out", "--cpu", "--seeds", "1", "--encodings", "t5"],
    "enwik8/run.sh": ["enwik8", "out", "--cpu", "--seeds", "1"],
    "glue/finetune.sh": ["data/CoLA", "model.pt", "out", "--seeds", "1", "--lr", "1e-5", "--cpu"],
    "reading/finetune.sh": ["squad", "model.pt", "out", "--seeds", "1", "--lr", "1e-5", "--cpu"],
    "clue/finetune.sh": ["data/TNEWS", "model.pt", "out", "--seeds", "1", "--lr", "1e-5", "--cpu"],
}


@pytest.mark.parametrize("name", TRAININGS)
def test_every_recipe_resumes_that_way(tmp_path, name):
    result = bash(EXAMPLES / name, *TRAININGS[name], "--dry-run", cwd=tmp_path)
    trained = [flags_of(words) for words in commands(result) if words[0] == "fairseq-train"]
    assert trained and all(flags["--update-epoch-batch-itr"] == "True" for flags in trained)
    assert os.listdir(tmp_path) == []


def test_every_recipe_that_trains_is_listed():
    for path in EXAMPLES.glob("*/*.sh"):
        if "train_model" in path.read_text() and path.parent.name != "common":
            assert f"{path.parent.name}/{path.name}" in TRAININGS
        assert (
            "fairseq-train "
            not in "".join(line for line in path.open() if line.startswith(("run ", "    run ")))
            or path.name == "lib.sh"
        )


def test_a_training_folder_is_locked(tmp_path):
    held = tmp_path / "run"
    body = 'hold run\nunset HELD_LOCKS\n( train_model run data ) || echo "as wanted"'
    result = shell(body, tmp_path)
    assert "as wanted" in result.stdout and "is at work there" in result.stderr
    assert held.is_dir()
    assert_error(shell("touch file\ntrain_model file/run data", tmp_path), "mkdir stopped")


def test_every_training_of_the_documentation_resumes_that_way():
    found = 0
    for path in [ROOT / "README.md", *ROOT.glob("docs/*.md"), *EXAMPLES.glob("*/*.md")]:
        for block in re.findall(r"```bash\n(.*?)```", path.read_text(), re.DOTALL):
            for command in re.findall(r"^fairseq-train(?:.*\\\n)*.*", block, re.MULTILINE):
                if "--max-" in command or "$TRAIN" in command:  # the others are incomplete
                    found += 1
                    settings = command + block if "$TRAIN" in command else command
                    assert "--update-epoch-batch-itr True" in settings, f"{path}: {command}"
    assert found >= 9
