"""Sentence tasks: published files and one's own to texts and labels, and fine-tuning on them."""

import pytest
from support.model_folders import packed_masked_lm
from support.recipes import EXAMPLES, bash, recipe_module, succeed, write

pytestmark = pytest.mark.journeys

RECIPE = EXAMPLES / "glue"
tasks = recipe_module("glue", "tasks")


def test_lines_without_a_label_are_left_out_and_counted(tmp_path, capsys):
    rows = ["a\tb\t1", "c\td\t0", *["e\tf\t1"] * 38, "g\th\t-"]
    for more, left_out in (([], 1), (["i", "j"], None)):
        for file in tasks.TASKS["AFQMC"].files:
            write(tmp_path / f"{file}.tsv", rows + more)
        given = ("AFQMC", tasks.TASKS["AFQMC"], tmp_path, tmp_path / "out")
        if left_out is None:
            with pytest.raises(SystemExit, match="most lines have no sentence1, sentence2, label"):
                tasks.prepare(*given)
            return
        tasks.prepare(*given)
        assert len((tmp_path / "out" / "label" / "train").read_text().splitlines()) == 40
        assert "train.tsv: 40 examples, 1 left out" in capsys.readouterr().err


def test_from_files_to_scores(tmp_path):
    model = packed_masked_lm(tmp_path / "made")
    (tmp_path / "CoLA").mkdir()
    rows = ["x\t1\t\tthe cat sleeps .", "x\t0\t*\tcat the barks ."] * 4
    for split in ("train", "dev"):
        write(tmp_path / "CoLA" / f"{split}.tsv", rows)
    given = ("CoLA", "CoLA", model, "data")
    succeed(RECIPE / "prepare.sh", *given, cwd=tmp_path, WORKERS="1")
    again = succeed(RECIPE / "prepare.sh", *given, cwd=tmp_path, PATH="/usr/bin:/bin")
    assert again.stdout == "data/data-bin is there\n"
    write(tmp_path / "CoLA" / "dev.tsv", rows[1:])
    changed = bash(RECIPE / "prepare.sh", *given, cwd=tmp_path)
    assert changed.returncode == 1 and "choose another folder" in changed.stderr
    run = ("data/data-bin", model, "run", "--cpu", "--log-interval", "1", "--num-workers", "0")
    fast = {"PRECISION": "", "BATCH": "4", "LR": "1e-2"}
    for epochs in ("1", "2"):  # it goes on
        result = succeed(RECIPE / "train.sh", *run, cwd=tmp_path, EPOCHS=epochs, **fast)
    assert "position encoding rotary" in result.stdout + result.stderr
    found = recipe_module("common", "table").epochs(tmp_path / "run")
    assert [set(epoch) for epoch in found] == [{"valid_mcc", "valid_accuracy"}] * 2
