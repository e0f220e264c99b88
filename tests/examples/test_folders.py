"""Folders that the recipes replace are their own: no text, model or data of others is deleted."""

from pathlib import Path

from support.recipes import EXAMPLES, assert_error, bash, write

pytest_plugins = ["support.stub_programs"]


def tree(folder):
    """The files below a folder and what is in them, but for locks."""
    found = (path for path in Path(folder).rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


# --- pre-training and translation: OUT/data-bin


def test_a_data_bin_of_ones_own_is_not_replaced(tmp_path):
    for split in ("train", "valid"):
        for ending in ("txt", "de", "en"):
            write(tmp_path / f"{split}.{ending}", ["a b"])
    (tmp_path / "out" / "data-bin").mkdir(parents=True)
    write(tmp_path / "out" / "data-bin" / "dict.txt", ["a 1"])
    given = ["wikitext", ".", "out", "--workers", "1"]
    refused = bash(EXAMPLES / "language_model" / "prepare.sh", *given, cwd=tmp_path)
    assert_error(refused, "out/data-bin: exists, and is not what this script makes", "no text")
    assert tree(tmp_path / "out") == {"data-bin/dict.txt": b"a 1\n"}


# --- model folders


def test_a_wrong_model_folder_is_refused_before_training(tmp_path, stubs):
    (tmp_path / "data").mkdir()
    write(tmp_path / "data" / "dict.txt", ["a 1"])
    (tmp_path / "run" / "model").mkdir(parents=True)
    (tmp_path / "run" / "model" / "mine").touch()
    given = ("t5", "data", "--cpu", "--save-dir", "run")
    refused = bash(
        EXAMPLES / "language_model" / "train.sh", *given, cwd=tmp_path, **stubs.variables
    )
    assert_error(refused, "run/model: exists, and is not", "another --save-dir")
    assert not stubs.called("fairseq") and (tmp_path / "run" / "model" / "mine").exists()
