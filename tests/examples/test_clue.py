"""CLUE recipe: its file formats, the whole chain on made-up tasks, settings."""

import json
import random
import re

import pytest
from conftest import SHARED
from support.chinese import sentence
from support.predictions import of_binarised
from support.recipes import (
    COMMON,
    EXAMPLES,
    bash,
    check_flags,
    commands,
    recipe_module,
    succeed,
    trainings,
    trainings_in,
    write,
)

from fairseq_posenc.training.sentence_tasks import files
from fairseq_posenc.training.sentence_tasks.tasks import read_table

pytest_plugins = ["support.chinese"]
RECIPE = EXAMPLES / "clue"

TASKS = read_table(str(RECIPE / "tasks.yaml"))
scores = recipe_module("common", "scores")


def read(task, path):
    return [[*e.texts, e.label] for e in files.examples(TASKS[task], str(path))]


WSC = {"span1_index": 0, "span1_text": "小明", "span2_index": 6, "span2_text": "他"}


@pytest.mark.parametrize(
    "task, record, expected",
    [
        (
            "TNEWS",
            {"label": "108", "label_desc": "x", "sentence": " 甲乙 ", "keywords": ""},
            ["甲乙", "108"],
        ),
        ("IFLYTEK", {"label": 3, "label_des": "x", "sentence": "甲"}, ["甲", "3"]),
        ("AFQMC", {"sentence1": "甲", "sentence2": "乙", "label": "0"}, ["甲", "乙", "0"]),
        (
            "CMNLI",
            {"sentence1": "甲", "sentence2": "乙", "label": "neutral"},
            ["甲", "乙", "neutral"],
        ),
        (
            "CSL",
            {"id": 1, "abst": "甲乙", "keyword": ["丙", "丁"], "label": "1"},
            ["丙 丁", "甲乙", "1"],
        ),
        (
            "WSC",
            {"text": "小明说天气好他笑", "target": WSC, "label": "true"},
            ["[小明]说天气好_他_笑", "true"],
        ),
    ],
)
def test_sentences_and_label_of_every_task(tmp_path, task, record, expected):
    lines = [json.dumps(record, ensure_ascii=False), "", json.dumps({**record, "label": "-"})]
    assert read(task, write(tmp_path / "train.json", lines)) == [expected]


def test_a_span_outside_the_text_is_one_line(tmp_path):
    record = {"text": "小明说", "target": WSC, "label": "true"}
    with pytest.raises(SystemExit, match="line 1: '他' at character 6 is not within the text"):
        read("WSC", write(tmp_path / "train.json", [json.dumps(record)]))


def test_tsv_files_have_sentences_and_label(tmp_path):
    assert read("TNEWS", write(tmp_path / "a.tsv", ["甲 乙\tx\r"])) == [["甲 乙", "x"]]
    assert read("AFQMC", write(tmp_path / "b.tsv", ["甲\t乙\t1"])) == [["甲", "乙", "1"]]


@pytest.mark.parametrize(
    "name, line, words",
    [
        ("train.json", '{"label": "1"}', "line 1: has no sentence"),
        ("train.json", '{"sentence": null, "label": 1}', "line 1: sentence is null; expected a te"),
        ("train.json", '{"sentence": "甲", "label": NaN}', "line 1: label is NaN; expected a text"),
        ("train.json", "甲\t1", "line 1: "),
        ("train.json", "", "no examples"),
        ("train.tsv", "甲\t乙\t1", "line 1: 3 columns instead of 2"),
    ],
)
def test_a_file_of_another_layout_is_one_line(tmp_path, name, line, words):
    write(tmp_path / name, [line])
    with pytest.raises(SystemExit, match=f"{name}: .*{words}"):
        files.extract(TASKS["TNEWS"], str(tmp_path), str(tmp_path / "out"))
    assert not list((tmp_path / "out").glob("*/*"))


@pytest.mark.skipif(not (SHARED / "data" / "tnews").exists(), reason="no real data here")
def test_real_tnews_has_its_published_sizes():
    folder = SHARED / "data" / "tnews"
    train, dev = (read("TNEWS", folder / f"{name}.tsv") for name in ("train", "dev"))
    assert (len(train), len(dev)) == (53360, 10000)
    assert len({label for _, label in train}) == TASKS["TNEWS"].labels
    assert {label for _, label in dev} <= {label for _, label in train}


@pytest.fixture(scope="module")
def prepared(chinese, tmp_path_factory):
    """Folder with a made-up CSL, through prepare.sh into ``data``."""
    folder, draw = tmp_path_factory.mktemp("clue"), random.Random(3)
    (folder / "raw" / "CSL").mkdir(parents=True)
    for name, size in (("train", 40), ("dev", 11)):
        texts = [sentence(draw) for _ in range(size)]
        # the label follows from the text, so it can be learned
        records = [
            {"label": str(int("股票" in text)), "abst": text, "keyword": ["中国", "新闻"]}
            for text in texts
        ]
        write(folder / "raw" / "CSL" / f"{name}.json", map(json.dumps, records))
    tests = [{**record, "id": 7 - number} for number, record in enumerate(records[:8])]
    write(folder / "raw" / "CSL" / "test.json", map(json.dumps, tests))
    given = ("raw", chinese / "fixed" / "data-bin", "data", "--workers", "1")
    result = succeed(RECIPE / "prepare.sh", *given, cwd=folder)
    assert "CSL/train.json: 40 examples, 0 lines left out" in result.stderr
    return folder


@pytest.mark.slow
def test_texts_are_treated_like_those_of_the_pre_training(prepared, chinese):
    dictionary = (chinese / "fixed" / "data-bin" / "dict.txt").read_text(encoding="utf-8")
    for part in ("CSL/input0", "CSL/input1"):
        found = (prepared / "data" / part / "dict.txt").read_text(encoding="utf-8")
        assert found == dictionary
    pieces = prepared / "data" / "work" / "CSL" / "pieces"
    assert (pieces / "input0" / "train").read_text(encoding="utf-8").startswith("中 ##国 新 ##闻\n")
    text = (pieces / "input1" / "train").read_text(encoding="utf-8")
    assert "t ##恤" in text and text == text.lower()


@pytest.mark.slow
def test_fine_tuning_ends_with_the_table(prepared, chinese_model):
    few = ("--lr", "5e-3", "--seeds", "3", "--epochs", "2", "--batch", "8", "--cpu")
    given = ("data/CSL", chinese_model / "checkpoint_last.pt", "runs", *few)
    result = succeed(RECIPE / "finetune.sh", *given, "--", "--num-workers", "0", cwd=prepared)
    table = result.stdout[result.stdout.index("| model |") :]
    assert table.startswith("| model | CSL (accuracy) | average |\n| --- |")
    log = prepared / "runs" / "gau" / "CSL" / "lr5e-3-batch8-seed3" / "train.log"
    found = dict(re.findall(r'"epoch": (\d).* "valid_accuracy": "([.\d]+)"', log.read_text()))
    assert sorted(found) == ["1", "2"]
    assert f"| gau | {max(map(float, found.values())):.2f} |" in table
    assert "GatedAttention" in result.stdout  # from the checkpoint, nobody said so
    succeed(RECIPE / "submit.sh", "data", "runs/gau", "out", cwd=prepared)
    labels, _ = of_binarised(prepared / "data" / "CSL", prepared / "runs" / "gau" / "CSL" / "model")
    answers = (prepared / "out" / "csl_predict.json").read_text().splitlines()
    expected = [{"id": 7 - number, "label": label} for number, label in enumerate(labels)]
    assert list(map(json.loads, answers)) == expected


@pytest.mark.parametrize(
    "task, classes, batch, epochs, rate",
    [
        ("AFQMC", "2", "16", "3", "3e-5"),
        ("CSL", "2", "16", "4", "2e-5"),
        ("IFLYTEK", "119", "32", "5", "3e-5"),
        ("TNEWS", "15", "16", "3", "2e-5"),
        ("WSC", "2", "16", "40", "1e-5"),
        ("CMNLI", "3", "32", "3", "3e-5"),
    ],
)
def test_settings_are_those_of_table_6(tmp_path, task, classes, batch, epochs, rate):
    (tmp_path / "clue" / task).mkdir(parents=True)
    (tmp_path / "clue" / task / "examples").write_text("3200\n")
    given = (f"clue/{task}", "models/mine/last.pt", "out")
    runs = trainings(RECIPE / "finetune.sh", *given, cwd=tmp_path)
    updates = 3200 // int(batch) * int(epochs)
    assert len(runs) == 3
    check_flags(
        runs[0],
        f"--num-classes {classes} --batch-size {batch} --max-epoch {epochs} --lr {rate} "
        f"--total-num-update {updates} --warmup-updates {updates // 10} --adam-eps 1e-8 "
        "--adam-betas '(0.9, 0.999)' --weight-decay 0.01 --dropout 0.1 --attention-dropout 0.1 "
        "--pooler-dropout 0.1 --init-token 0",
    )
    assert "--separator-token" not in runs[0]


def test_one_command_makes_table_5(tmp_path):
    few = ("--dry-run", "--cpu", "--seeds", "1", "--tasks", "WSC CSL", "--", "--num-workers", "0")
    checkpoints = [f"models/{name}/checkpoint_last.pt" for name in ("roformer_v2", "gau")]
    result = bash(RECIPE / "table5.sh", "CLUE", "data", "out", *checkpoints, *few, cwd=tmp_path)
    found = commands(result)
    runs = trainings_in(found)
    # GAU Table 6: batch, epochs, learning rate
    expected = {"WSC": ("16", "40", "1e-5"), "CSL": ("16", "4", "2e-5")}
    assert len(runs) == 4 and all("--num-workers" in run for run in runs)
    for run in runs:
        _, model, task, _ = run["--save-dir"].rsplit("/", 3)
        settings = (run["--batch-size"], run["--max-epoch"], run["--lr"])
        assert settings == expected[task] and model in run["--restore-file"]
    table = [str(COMMON / "scores.py"), "--paper", "gau", "--epoch", "best"]
    assert found[-1][2:] == [*table, "--reading", "out/reading", "out/runs"]
