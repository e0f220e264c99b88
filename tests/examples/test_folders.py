"""Folders that the recipes replace are their own: no text, model or data of others is deleted."""

from pathlib import Path

import pytest
from support.recipes import EXAMPLES, assert_error, bash, write

pytest_plugins = ["support.stub_programs"]


def tree(folder):
    """The files below a folder and what is in them, but for locks."""
    found = (path for path in Path(folder).rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def pretrained(folder):
    """The files of pre-training data that the fine-tuning recipes read."""
    folder.mkdir(parents=True)
    write(folder / "dict.txt", ["a 1"])
    write(folder / "bpe.codes", ["#version: 0.2", "a b"])
    write(folder / "text", ["lang en"])


# --- fine-tuning: OUT/TASK


def test_the_files_of_a_task_are_not_replaced_by_its_data(tmp_path):
    pretrained(tmp_path / "pre")
    for split in ("train", "dev"):
        rows = [f"x\t{label}\t\ta b" for label in "0101"]
        (tmp_path / "glue" / "CoLA").mkdir(parents=True, exist_ok=True)
        write(tmp_path / "glue" / "CoLA" / f"{split}.tsv", rows)
    (tmp_path / "data" / "WSC").mkdir(parents=True)
    before = tree(tmp_path)
    for recipe, *arguments in (
        ("glue/prepare.sh", "glue", "pre", "glue"),
        ("glue/prepare.sh", "glue", "pre", "./glue/"),
        ("glue/prepare_wsc.sh", "data/WSC", "pre", "data"),
    ):
        refused = bash(EXAMPLES / recipe, *arguments, "--workers", "1", cwd=tmp_path)
        assert_error(refused, "would be replaced, and ", " lies in it; give another OUT")
        assert tree(tmp_path) == before


# --- pre-training and translation: OUT/data-bin


@pytest.mark.parametrize("recipe", ["bert", "clue", "language_model"])
def test_a_data_bin_of_ones_own_is_not_replaced(tmp_path, recipe):
    for split in ("train", "valid"):
        for ending in ("txt", "de", "en"):
            write(tmp_path / f"{split}.{ending}", ["a b"])
    (tmp_path / "out" / "data-bin").mkdir(parents=True)
    write(tmp_path / "out" / "data-bin" / "dict.txt", ["a 1"])
    given = [".", "out", "--workers", "1"]
    if recipe == "language_model":
        given.insert(0, "wikitext")
    folder = recipe if recipe == "language_model" else f"{recipe}_pretraining"
    refused = bash(EXAMPLES / folder / "prepare.sh", *given, cwd=tmp_path)
    assert_error(refused, "out/data-bin: exists, and is not what this script makes", "no text")
    assert tree(tmp_path / "out") == {"data-bin/dict.txt": b"a 1\n"}


# --- model folders


@pytest.mark.parametrize(
    "recipe, model", [("bert_pretraining", "roformer"), ("language_model", "t5")]
)
def test_a_wrong_model_folder_is_refused_before_training(tmp_path, stubs, recipe, model):
    (tmp_path / "data").mkdir()
    write(tmp_path / "data" / "dict.txt", ["a 1"])
    (tmp_path / "run" / "model").mkdir(parents=True)
    (tmp_path / "run" / "model" / "mine").touch()
    given = (model, "data", "--cpu", "--save-dir", "run")
    refused = bash(EXAMPLES / recipe / "train.sh", *given, cwd=tmp_path, **stubs.variables)
    assert_error(refused, "run/model: exists, and is not", "another --save-dir")
    assert not stubs.called("fairseq") and (tmp_path / "run" / "model" / "mine").exists()
