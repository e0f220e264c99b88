"""Trainings of the recipes that are resumed end as if they had not been interrupted."""

import os
import re

import pytest
from support.commands import ROOT
from support.recipes import EXAMPLES, trainings

TRAININGS = {
    "swap_encoding/swap.sh": ["model.pt", "data", "out", "--cpu"],
    "language_model/train.sh": ["rotary", "data", "--cpu"],
    "language_model/compare.sh": ["data", "out", "--cpu", "--seeds", "1", "--encodings", "t5"],
    "enwik8/run.sh": ["enwik8", "out", "--cpu", "--seeds", "1"],
}


@pytest.mark.parametrize("name", TRAININGS)
def test_every_recipe_resumes_that_way(tmp_path, name):
    trained = trainings(EXAMPLES / name, *TRAININGS[name], cwd=tmp_path)
    assert trained and all(flags["--update-epoch-batch-itr"] == "True" for flags in trained)
    assert os.listdir(tmp_path) == []


def test_every_recipe_that_trains_is_listed():
    for path in EXAMPLES.glob("*/*.sh"):
        if path.parent.name != "common" and re.search(r"^ *(time )?train ", path.read_text(), re.M):
            assert f"{path.parent.name}/{path.name}" in TRAININGS
        assert not re.search(r"^ *run fairseq-train", path.read_text(), re.M)


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
