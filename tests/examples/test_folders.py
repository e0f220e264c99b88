"""Folders that the recipes replace are their own: no text, model or data of others is deleted."""

import os
from pathlib import Path

import pytest
from support.multiple_choice import copa
from support.recipes import EXAMPLES, assert_error, bash, shell, write

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


# --- replaceable, replace_folder


def test_a_folder_is_replaced_only_if_it_is_the_scripts_own(tmp_path):
    own, empty, other = tmp_path / "own", tmp_path / "empty", tmp_path / "other"
    for folder in (own, empty, other):
        folder.mkdir()
    (own / "made").touch()
    (empty / ".lock").touch()
    (other / "mine").touch()
    for name in ("own", "own/", "empty", "absent"):
        assert shell(f"replaceable OUT {name} made", tmp_path).returncode == 0
    for name in ("other", "other/mine"):
        refused = shell(f"replaceable --model {name} made", tmp_path)
        assert_error(refused, f"{name}: exists, and is not", "no made", "another --model")


@pytest.mark.parametrize("place", ["own", "own/below", "own/file", "link/below", "way/own/below"])
def test_a_folder_with_an_input_in_it_is_not_replaced(tmp_path, place):
    (tmp_path / "own" / "below").mkdir(parents=True)
    (tmp_path / "own" / "file").touch()
    (tmp_path / "owner").mkdir()  # a name that only begins alike
    (tmp_path / "link").symlink_to("own")
    (tmp_path / "way").symlink_to(".")
    refused = shell(f"replaceable OUT own file owner {place}", tmp_path)
    assert_error(refused, f"own: would be replaced, and {place} lies in it", "another OUT")
    assert shell("replaceable OUT own file owner absent .", tmp_path).returncode == 0


def test_equal_folders_keep_their_times_and_others_are_replaced_whole(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a").write_text("1")
    (tmp_path / "out" / "of.log").write_text("yesterday")
    os.utime(tmp_path / "out" / "a", (1, 1))
    body = "mkdir part\nprintf $content >part/a\ntouch part/of.log\nreplace_folder part out"
    assert shell(body, tmp_path, content="1").returncode == 0
    assert (tmp_path / "out" / "a").stat().st_mtime == 1
    (tmp_path / "out" / "old").touch()
    assert shell(body, tmp_path, content="2").returncode == 0
    assert tree(tmp_path / "out") == {"a": b"2", "of.log": b""}
    assert sorted(os.listdir(tmp_path)) == ["out", "script.sh"]


@pytest.mark.parametrize("path", ["a", "a/", "a//", "./a/"])
def test_an_absolute_path_has_no_slash_at_its_end(tmp_path, path):
    printed = shell(f"absolute {path}; absolute {tmp_path}/a/; absolute /", tmp_path).stdout
    assert os.path.normpath(printed[: -len(f"{tmp_path}/a/")]) == f"{tmp_path}/a"
    assert printed.endswith(f"a{tmp_path}/a/")


# --- fine-tuning: OUT/TASK


def test_the_files_of_a_task_are_not_replaced_by_its_data(tmp_path):
    pretrained(tmp_path / "pre")
    for split in ("train", "dev"):
        rows = [f"x\t{label}\t\ta b" for label in "0101"]
        (tmp_path / "glue" / "CoLA").mkdir(parents=True, exist_ok=True)
        write(tmp_path / "glue" / "CoLA" / f"{split}.tsv", rows)
    for task in ("squad", "copa", "WSC"):
        (tmp_path / "data" / task).mkdir(parents=True)
    for split in ("train", "dev"):
        write(tmp_path / "data" / "squad" / f"{split}-v2.0.json", ["{}"])
    copa(tmp_path / "data" / "copa")
    before = tree(tmp_path)
    for recipe, *arguments in (
        ("glue/prepare.sh", "glue", "pre", "glue"),
        ("glue/prepare.sh", "glue", "pre", "./glue/"),
        ("reading/prepare.sh", "squad", "data/squad", "pre", "data"),
        ("reading/prepare.sh", "copa", "data/copa", "pre", "data"),
        ("glue/prepare_wsc.sh", "data/WSC", "pre", "data"),
    ):
        refused = bash(EXAMPLES / recipe, *arguments, "--workers", "1", cwd=tmp_path)
        assert_error(refused, "would be replaced, and ", " lies in it; give another OUT")
        assert tree(tmp_path) == before


def test_files_of_ones_own_in_the_place_of_a_tasks_data_are_kept(tmp_path):
    pretrained(tmp_path / "pre")
    for task in ("squad", "copa"):
        (tmp_path / "out" / task).mkdir(parents=True)
        (tmp_path / "out" / task / "notes").touch()
    copa(tmp_path)
    for split in ("train", "dev"):
        write(tmp_path / f"{split}-v2.0.json", ["{}"])
    for task, file in (("squad", "task"), ("copa", "examples")):
        refused = bash(EXAMPLES / "reading/prepare.sh", task, ".", "pre", "out", cwd=tmp_path)
        assert_error(refused, f"out/{task}: exists, and is not", f"no {file}", "another OUT")
        assert (tmp_path / "out" / task / "notes").exists()


# --- pre-training and translation: OUT/data-bin


@pytest.mark.parametrize("recipe", ["bert", "clue", "language_model", "translation"])
def test_a_data_bin_of_ones_own_is_not_replaced(tmp_path, recipe):
    for split in ("train", "valid"):
        for ending in ("txt", "de", "en"):
            write(tmp_path / f"{split}.{ending}", ["a b"])
    (tmp_path / "out" / "data-bin").mkdir(parents=True)
    write(tmp_path / "out" / "data-bin" / "dict.txt", ["a 1"])
    given = [".", "out", "--workers", "1"]
    if recipe == "language_model":
        given.insert(0, "wikitext")
    if recipe == "translation":
        given += ["--source-lang", "de", "--target-lang", "en"]
    folder = recipe if recipe in ("translation", "language_model") else f"{recipe}_pretraining"
    refused = bash(EXAMPLES / folder / "prepare.sh", *given, cwd=tmp_path)
    file = "text.settings" if recipe == "translation" else "text"
    assert_error(refused, "out/data-bin: exists, and is not what this script makes", f"no {file}")
    assert tree(tmp_path / "out") == {"data-bin/dict.txt": b"a 1\n"}


# --- model folders

PACK = 'fairseq-posenc() { [[ -f $2 ]] || die "no $2"; mkdir -p "$3"; cp "$2" "$3/model.json"; }\n'


def test_a_model_folder_is_replaced_when_the_new_one_is_packed(tmp_path):
    (tmp_path / "new").write_text("new")
    for name in ("absent", "empty", "old", "old2"):
        if name != "absent":
            (tmp_path / name).mkdir()
        if name.startswith("old"):
            (tmp_path / name / "model.json").write_text("old")
            (tmp_path / name / "checkpoint.pt").write_text("old")
        slash = "/" if name == "old2" else ""
        result = shell(f"{PACK}pack_model --model {name}{slash} new", tmp_path)
        assert result.returncode == 0, result.stderr
        assert tree(tmp_path / name) == {"model.json": b"new"}
    # also one of its own checkpoint
    (tmp_path / "old" / "checkpoint.pt").write_text("mine")
    assert shell(f"{PACK}pack_model --model old old/checkpoint.pt", tmp_path).returncode == 0
    assert tree(tmp_path / "old") == {"model.json": b"mine"}
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".")]


def test_a_model_folder_stays_when_packing_fails_or_it_is_none(tmp_path):
    for name, file in (("old", "model.json"), ("runs", "checkpoint_last.pt")):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_text("old")
    (tmp_path / "new").touch()
    failed = shell(f"{PACK}pack_model --model old absent", tmp_path)
    assert failed.returncode == 1 and tree(tmp_path / "old") == {"model.json": b"old"}
    refused = shell(f"{PACK}pack_model --model runs new", tmp_path)
    assert_error(refused, "runs: exists, and is not", "no model.json", "another --model")
    assert tree(tmp_path / "runs") == {"checkpoint_last.pt": b"old"}


def test_a_wrong_model_folder_is_refused_before_translating(tmp_path, stubs):
    (tmp_path / "data").mkdir()
    write(tmp_path / "data" / "text.settings", ["SOURCE=de", "TARGET=en"])
    write(tmp_path / "data" / "reference.test.en", ["a"])
    (tmp_path / "proj" / "runs").mkdir(parents=True)
    (tmp_path / "proj" / "runs" / "checkpoint_last.pt").touch()
    before = tree(tmp_path)
    evaluate = EXAMPLES / "translation" / "evaluate.sh"
    given = ("data", "proj/runs", "--model", "proj/runs", "--checkpoint", "data/text.settings")
    refused = bash(evaluate, *given, cwd=tmp_path, **stubs.variables)
    assert_error(refused, "proj/runs: exists, and is not", "another --model")
    assert tree(tmp_path) == before and not stubs.called("fairseq")


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
