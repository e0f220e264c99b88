"""Sentence tasks: published files and one's own to texts and labels, and fine-tuning on them."""

import json

import pytest
from support.model_folders import packed_masked_lm
from support.recipes import EXAMPLES, bash, recipe_module, succeed, write

RECIPE = EXAMPLES / "glue"
tasks = recipe_module("glue", "tasks")
SPANS = {"span1_index": 0, "span1_text": "猫", "span2_index": 3, "span2_text": "它"}


def extract(folder, name, train, valid=None, *flags):
    """The texts and labels that tasks.py writes for these lines, by their places."""
    task = tasks.TASKS[name]
    ending = "jsonl" if isinstance(train[0], dict) else "tsv"
    for file in task.files:
        lines = train if file == "train" or valid is None else valid
        lines = [json.dumps(one) if isinstance(one, dict) else one for one in lines]
        write(folder / f"{file}.{ending}", lines)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["tasks.py", name, str(folder), str(folder / "out"), *flags])
        tasks.main()
    found = {}
    for path in (folder / "out").glob("*/*"):
        found[f"{path.parent.name}/{path.name}"] = path.read_text(encoding="utf-8").split("\n")[:-1]
    return found, (folder / "out" / "task").read_text().split()


NLI = ["entailment", "neutral", "contradiction"]
MNLI = "index promptID pairID genre sentence1 sentence2 label1 gold_label"
PUBLISHED = [
    ("CoLA", ["gj\t1\t\tA cat.", "gj\t0\t*\tCat a."], ["A cat.", "Cat a."], None, ["1", "0"]),
    ("SST-2", ["sentence\tlabel", 'a "b\t1', "c\t0"], ['a "b', "c"], None, ["1", "0"]),
    (
        "MRPC",
        ["Quality\t#1 ID\t#2 ID\t#1 String\t#2 String", "1\t7\t8\ta b\tc", "0\t7\t8\td\te"],
        *(["a b", "d"], ["c", "e"], ["1", "0"]),
    ),
    (
        "STS-B",
        ["index\tsentence1\tsentence2\tscore", "0\ta\tb\t2.500", "1\tc\td\t5"],
        *(["a", "c"], ["b", "d"], ["0.5", "1.0"]),
    ),
    (
        "MNLI",
        [MNLI.replace(" ", "\t"), *(f"0\t0\t0\tg\ta{i}\tb\tx\t{n}" for i, n in enumerate(NLI))],
        *(["a0", "a1", "a2"], ["b"] * 3, NLI),
    ),
    (
        "CB",
        [{"premise": "a", "hypothesis": "b", "label": n, "idx": 1} for n in NLI],
        *(["a"] * 3, ["b"] * 3, NLI),
    ),
    (
        "WiC",
        [{"word": "w", "sentence1": "a", "sentence2": "b", "label": n} for n in (True, False)],
        *(["w: a", "w: a"], ["b", "b"], ["true", "false"]),
    ),
    ("TNEWS", ["新闻\t100", "足球\t101"], ["新闻", "足球"], None, ["100", "101"]),
    (
        "CSL",
        [{"keyword": ["词", "句"], "abst": "文", "label": n} for n in "01"],
        *(["词 句"] * 2, ["文"] * 2, ["0", "1"]),
    ),
    (
        "WSC",
        [{"text": "猫睡。它饿。", "target": SPANS, "label": n} for n in ("true", "false")],
        *(["[猫]睡。_它_饿。"] * 2, None, ["true", "false"]),
    ),
]


@pytest.mark.parametrize("name, lines, first, second, labels", PUBLISHED)
def test_published_files(tmp_path, name, lines, first, second, labels):
    found, settings = extract(tmp_path, name, lines)
    splits = ["train", "valid", *(["valid1"] if name == "MNLI" else [])]
    for split in splits:
        texts = [found.get(f"{part}/{split}") for part in ("input0", "input1", "label")]
        assert texts == [first, second, labels]
    assert ("--valid-subset" in settings) == (name == "MNLI")
    assert (
        ("--regression-target" in settings) == (name == "STS-B") == ("label/dict.txt" not in found)
    )
    assert settings[settings.index("--num-classes") + 1] == str(tasks.TASKS[name].classes)


def test_lines_without_a_label_are_left_out_and_counted(tmp_path, capsys):
    lines = ["a\tb\t1", "c\td\t0", *["e\tf\t1"] * 38, "g\th\t-"]
    assert len(extract(tmp_path, "AFQMC", lines)[0]["label/train"]) == 40
    assert "train.tsv: 40 examples, 1 left out" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="most lines have no sentence1, sentence2, label"):
        extract(tmp_path, "AFQMC", [*lines, "i", "j"])


OWN = ("--text", "one", "two", "--label", "same")


def test_a_task_of_ones_own(tmp_path):
    header, train = "two\tone\tsame", ["b\ta\tyes", "d\tc\tno", "f\te\tno"]
    found, settings = extract(tmp_path, "own", [header, *train], [header, "h\tg\tyes"], *OWN)
    assert [found["input0/train"], found["input1/valid"]] == [["a", "c", "e"], ["h"]]
    assert found["label/dict.txt"] == ["no 2", "yes 1"]  # as fairseq-preprocess orders them
    assert settings[settings.index("--num-classes") + 1] == "2"
    numbers = ("--text", "two", "--label", "same", "--numbers", "-1", "3")
    found, settings = extract(tmp_path, "own", [header, "a\tb\t0", "a\tb\t3"], None, *numbers)
    assert found["label/train"] == ["0.25", "1.0"] and "--regression-target" in settings


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
