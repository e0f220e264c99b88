"""Own sentence tasks: what their YAML may say, how their files are read, and what is refused."""

import re

import pytest
import yaml
from support.recipes import EXAMPLES, error_of, write

from fairseq_posenc.training.sentence_tasks import files, recipes, tasks

PAIRS = {"train": "train.tsv", "valid": "dev.tsv", "text": ["one", "two"], "label": "same"}
NUMBERS = {"train": "train.tsv", "valid": "dev.tsv", "header": False, "text": 2, "label": 1}
HEADER = "one\ttwo\tsame"
TRAIN = [HEADER, "a b\tc\tyes", "d\te\tno", "f\tg\tyes"]


def table(folder, entry, name="mine"):
    """Write a YAML file with one task."""
    path = folder / "tasks.yaml"
    path.write_text(yaml.safe_dump({name: entry}), encoding="utf-8")
    return str(path)


def extract(folder, entry, **texts):
    """Read the files of a task, which are written first; returns what is in the output by path."""
    for name, lines in texts.items():
        write(folder / f"{name}.tsv", lines)
    out = folder / "out"
    files.extract(tasks.task_in(table(folder, entry), "mine"), str(folder), str(out))
    return {
        str(path.relative_to(out)): path.read_text(encoding="utf-8").splitlines()
        for path in out.glob("*/*")
    }


def test_columns_by_name_and_labels_of_the_training_file(tmp_path):
    test = ["id\ttwo\tone", 'x\t"c d\ta  b']
    entry = {**PAIRS, "test": "test.tsv", "id": "id"}
    found = extract(tmp_path, entry, train=TRAIN, dev=[HEADER, "h\ti\tno"], test=test)
    assert found == {
        "input0/train": ["a b", "d", "f"],
        "input1/train": ["c", "e", "g"],
        "label/train": ["yes", "no", "yes"],
        "input0/valid": ["h"],
        "input1/valid": ["i"],
        "label/valid": ["no"],
        "label/dict.txt": ["yes 2", "no 1"],  # as fairseq-preprocess orders them
        "input0/test": ["a b"],
        "input1/test": ['"c d'],
        "test/mine.tsv": ['x\ta b\t"c d'],
    }
    mine = tasks.task_in(str(tmp_path / "tasks.yaml"), "mine")
    recipes.describe(mine, str(tmp_path / "out" / "found.yaml"), str(tmp_path / "task.yaml"))
    (task,) = tasks.read_table(str(tmp_path / "task.yaml")).values()
    assert task.labels == ("yes", "no") and task.outputs == 2
    assert recipes.settings(task, "tupe") == {
        **{"TARGET": ["--num-classes", 2], "METRICS": "accuracy", "BEST": "accuracy"},
        **{"BOUNDS": (), "USUAL_EPOCHS": "3", "USUAL_BATCHES": (32,), "USUAL_RATES": tasks.RATES},
    }
    assert (tmp_path / "out" / "examples").read_text() == "3\n"


def test_listed_labels_keep_their_order(tmp_path):
    entry = {**PAIRS, "labels": ["no", "maybe", "yes"]}
    found = extract(tmp_path, entry, train=TRAIN, dev=[HEADER, "h\ti\tmaybe"])
    assert found["label/dict.txt"] == ["no 1", "maybe 0", "yes 2"]


def test_columns_by_number_and_numbers_from_0_to_1(tmp_path):
    texts = {"train": ["-1\ta", "3\tb", "1\tc"], "dev": ["2\td", "5\te"]}
    found = extract(tmp_path, {**NUMBERS, "regression": True}, **texts)
    assert found["label/train"] == ["0.0", "1.0", "0.5"]
    assert found["label/valid"] == ["0.75", "1.5"]  # beyond those in the training file
    found = extract(tmp_path, {**NUMBERS, "regression": [-2, 8]}, **texts)
    assert found["label/train"] == ["0.1", "0.5", "0.3"]


def test_settings_of_own_tasks_reach_fairseq():
    entry = {**PAIRS, "scores": ["f1", "mcc"], "labels": ["0", "x"], "positive": "x"}
    entry.update(epochs=7, batch=8, lr=[1e-4, "3e-4"])
    task = tasks.read_task("mine", entry, "t.yaml")
    assert recipes.settings(task, "gau") == {
        **{"TARGET": ["--num-classes", 2, "--positive-label", "x"], "BOUNDS": ()},
        **{"METRICS": "f1,mcc", "BEST": "f1", "USUAL_EPOCHS": "7"},
        **{"USUAL_BATCHES": (8,), "USUAL_RATES": ("0.0001", "3e-4")},
    }


def test_every_task_of_the_benchmarks_is_read():
    for recipe in ("glue", "clue"):
        for name, task in tasks.read_table(str(EXAMPLES / recipe / "tasks.yaml")).items():
            assert task.lenient and task.test and task.id is not None, name


@pytest.mark.parametrize(
    "change, words",
    [
        ({"lable": "x"}, "lable: unknown key; did you mean label or labels?"),
        ({"colour": "x"}, "colour: unknown key; known: train, valid"),
        ({"label": None}, "label: null: expected a text"),
        ({"labels": [True, "x"]}, "[true, x]: is true or false in YAML; write it in quotes"),
        ({"labels": ["a b", "x"]}, "the label 'a b' is no word that fairseq"),
        ({"labels": ["x"]}, "labels: [x]: expected two or more"),
        ({"labels": [1, 1]}, "labels: [1, 1]: 1: given twice"),
        ({"text": ["a", "b", "c"]}, "text: [a, b, c]: expected one column, or two"),
        ({"text": 0}, "text: 0: expected a whole number above 0"),
        ({"text": "same"}, "[same, same]: the same column twice"),
        ({"header": False}, "column one: is a name, but header is false; give numbers from 1"),
        ({"header": ["one", "same"]}, "column two: header has only one, same"),
        ({"regression": [5, 0]}, "regression: [5, 0]: expected true, or the smallest and"),
        ({"regression": True, "labels": 2}, "labels: are for classes"),
        ({"regression": True, "scores": "f1"}, "scores: f1: for numbers (regression) there are"),
        ({"scores": "pearson"}, "scores: pearson: for classes there are accuracy, f1, mcc"),
        ({"scores": "bleu"}, "scores: bleu: unknown; known: accuracy"),
        ({"scores": "f1", "labels": ["a", "b"]}, "positive: 1: no such label"),
        ({"epochs": 1.5}, "epochs: 1.5: expected a whole number above 0"),
        ({"batch": 0}, "batch: 0: expected a whole number above 0"),
        ({"lr": "fast"}, "lr: fast: expected numbers such as 2e-5"),
        ({"test": {"../x": "t.tsv"}}, "test: name: ../x: expected letters"),
        ({"papers": {"gau": {"epoch": 3}}}, "gau: epoch: unknown key; did you mean epochs?"),
    ],
)
def test_settings_that_cannot_be_meant_are_one_line(tmp_path, change, words):
    message = error_of(tasks.read_table, table(tmp_path, {**PAIRS, **change}))
    assert "tasks.yaml: mine: " in message and words in message


@pytest.mark.parametrize(
    "text, words",
    [
        ("", "describes no task"),
        ("train: x\n", "train: expected the name of a task with its settings indented"),
        ("mine:\n  train: [x\n", "line 3: "),
        ("a b: {train: x, valid: x, text: 1, label: 2}\n", "a b: expected letters"),
        ("mine: {train: x}\n", "mine: has no valid; a task needs train, valid, text, label"),
        ("mine: !!python/object/apply:os.getcwd []\n", "could not determine a constructor"),
    ],
)
def test_a_yaml_file_of_another_kind_is_one_line(tmp_path, text, words):
    path = tmp_path / "tasks.yaml"
    path.write_text(text)
    assert words in error_of(tasks.read_table, str(path))
    assert "No such file" in error_of(tasks.read_table, str(tmp_path / "none.yaml"))


@pytest.mark.parametrize(
    "change, texts, words",
    [
        ({}, {"dev": [HEADER, "a\tb\tmaybe"]}, r"dev.tsv: line 2: label 'maybe' is none of .*yes"),
        ({}, {"dev": [HEADER, "a\tb"]}, "dev.tsv: line 2: 2 columns instead of 3"),
        ({}, {"dev": [HEADER, "a\t\tyes"]}, "dev.tsv: line 2: column two is empty"),
        ({}, {"dev": [HEADER, "a\tb\t"]}, "dev.tsv: line 2: column same is empty"),
        ({}, {"dev": ["one\ttwo", "a\tb"]}, "dev.tsv: has no column same, but one, two"),
        ({}, {"dev": [HEADER]}, "dev.tsv: contains no examples"),
        ({}, {"train": []}, "train.tsv: contains no examples"),
        ({}, {"train": TRAIN[:2]}, "train.tsv: all examples have the label 'yes'"),
        (
            {"labels": 2},
            {"train": [*TRAIN, "x\ty\tz"]},
            "line 5: label 'z' is number 3, and mine has 2",
        ),
        ({}, {"train": [*TRAIN, "x\ty\ta z"]}, "train.tsv: line 5: the label 'a z' is no word"),
        (
            {"labels": ["yes", "x"]},
            {},
            "train.tsv: line 3: label 'no' is none of the labels of the",
        ),
        ({"scores": "f1"}, {}, r"positive: 1: is none of the labels .*\(yes, no\)"),
        ({"regression": True}, {}, "train.tsv: line 2: the label 'yes' is not a number"),
        ({"text": 9}, {}, "train.tsv: has no column 9, but one, two, same"),
        ({"test": "test.tsv"}, {"test": ["one\ttwo", "a\tb", "c"]}, "test.tsv: line 3: 1 columns"),
        ({"test": "test.tsv", "id": "n"}, {"test": ["one\ttwo", "a\tb"]}, "no column n, but one"),
    ],
)
def test_files_that_do_not_fit_are_one_line(tmp_path, change, texts, words):
    texts = {"train": TRAIN, "dev": [HEADER, "h\ti\tno"], **texts}
    assert re.search(words, error_of(lambda: extract(tmp_path, {**PAIRS, **change}, **texts)))


def test_numbers_that_do_not_fit_are_one_line(tmp_path):
    good = ["1\ta", "2\tb"]
    cases = [
        ({"regression": [0, 5]}, ["6\tc"], "dev.tsv: line 1: label 6 is not in 0 to 5"),
        ({"regression": True}, ["nan\tc"], "dev.tsv: line 1: the label 'nan' is not a number"),
    ]
    for change, dev, words in cases:
        assert words in error_of(
            lambda c=change, d=dev: extract(tmp_path, {**NUMBERS, **c}, train=good, dev=d)
        )
    constant = {"train": ["1\ta", "1\tb"], "dev": good}
    entry = {**NUMBERS, "regression": True}
    assert "have the label 1.0" in error_of(lambda: extract(tmp_path, entry, **constant))
