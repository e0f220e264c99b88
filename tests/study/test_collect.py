"""The results that are collected from the logs and outputs of a study's commands."""

import json
from pathlib import Path

import pytest
from support.recipes import recipe_module

pytestmark = pytest.mark.formulas

collect, logs = (recipe_module("study", name) for name in ("collect", "logs"))


@pytest.fixture(autouse=True)
def here(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(logs, "_output", lambda *words: ["/plug-in"] if "path" in words else [])


def write(name, *lines):
    Path(name).write_text("".join(f"{line}\n" for line in lines))
    return name


def test_an_interrupted_training_counts_once():
    command = "+ fairseq-train data --user-dir /plug-in --adam-betas '(0.9, 0.98)'"
    start = "num. shared model params: 1,000 (num. trained: 200)"
    lines = [
        command,
        start,
        "total memory = 79.109 GB ; name = GPU",
        '{"epoch": 1, "valid_loss": "9.5", "valid_num_updates": "0"}',
        '{"epoch": 1, "loss": "9.0", "num_updates": "2", "gb_free": "77.1"}',
        '{"epoch": 1, "valid_loss": "8.5", "valid_num_updates": "4"}',
        '{"epoch": 1, "train_wpb": "10.5", "train_num_updates": "4", "train_train_wall": "3"}',
        '{"epoch": 2, "loss": "8.0", "num_updates": "6", "gb_free": "76.0"}',
        "Traceback",
        command,
        start,
        '{"epoch": 2, "loss": "8.0", "num_updates": "6", "gb_free": "76.2"}',
        '{"epoch": 2, "valid_loss": "7.5", "valid_num_updates": "8"}',
        '{"epoch": 2, "train_wpb": "11", "train_num_updates": "8", "train_train_wall": "4"}',
        "done training in 3.0 seconds",
    ]
    found = collect.train(write("train.log", *lines))
    assert found.pop("environment")["fairseq_posenc"]
    assert found == {
        "parameters": 1000,
        "trained": 200,
        "updates": 8,
        "tokens": 4 * 10.5 + 4 * 11,
        "seconds": {"train": 7},
        "curve": [
            {"update": 0, "valid_loss": 9.5},
            {"update": 2, "train_loss": 9.0},
            {"update": 4, "valid_loss": 8.5},
            {"update": 6, "train_loss": 8.0},
            {"update": 8, "valid_loss": 7.5},
        ],
        "peak_memory_mb": round(3.109 * 1024),
        "scores": {"loss": 7.5},
        "commands": [command[2:].replace("/plug-in", '"$(fairseq-posenc path)"')],
    }
    diverged = [*lines[:-1], "FloatingPointError: Minimum loss scale reached (0.0001)."]
    assert "Minimum loss scale" in collect.train(write("train.log", *diverged))["error"]


def test_losses_are_read_from_either_command():
    log = write("log", "x | INFO | Loss (base 2): 3.0000, Perplexity: 8.00")
    assert collect.losses(log, "valid", "") == {"scores": {"loss": 3.0, "perplexity": 8.0}}
    log = write("log", "Evaluated 1,000 tokens in 1.0s", "Loss (base 2): 3.0000, Perplexity: 8.00")
    found = collect.losses(log, "valid", "_x", 500)["scores"]
    assert found.pop("word_perplexity_x") == 2.0**6 and len(found) == 2
    log = write("log", 'x {"valid_loss": "4", "valid_nll_loss": "3", "valid_accuracy": "12.5"}')
    found = {"loss_x": 4.0, "perplexity_x": 8.0, "accuracy_x": 12.5}
    assert collect.losses(log, "valid", "_x") == {"scores": found}
    with pytest.raises(SystemExit, match="log: has no loss"):
        collect.losses(log, "test", "")


def test_the_learning_rate_with_the_best_answers_counts():
    tables = [
        write("b", "1\t0", "0\t1", "1\t1", "1\t1"),
        write("a", "1\t0", "0\t0", "1\t1", "1\t1"),
    ]
    found = collect.answers(tables, "sst2", ["accuracy", "f1"], "1")
    assert found["scores"] == {"sst2_accuracy": 75.0, "sst2_f1": 80.0}
    assert found["files"] == {"answers": {"sst2": "a"}}
    numbers = [write("c", "0.0\t0.1", "0.5\t0.6", "1.0\t1.1")]
    assert collect.answers(numbers, "stsb", ["pearson"], "1")["scores"] == {"stsb_pearson": 100.0}


def test_where_a_model_breaks():
    right = {2: "100", 4: "95", 6: "50", 8: "99"}
    log = write("log", *(json.dumps({f"length{n}_exact_match": v}) for n, v in right.items()))
    found = collect.lengths(log, "copy", 4)
    scores = {"copy_within": 97.5, "copy_beyond": 74.5, "copy_breaking": 1.0}
    assert found["scores"] == scores
    assert found["lengths"] == {"copy": {"2": 100.0, "4": 95.0, "6": 50.0, "8": 99.0}}
    training = {"curve": [{"update": 1, "valid_loss": 2.0}], "tokens": 5, "seconds": {"train": 3}}
    trainings = {
        task: {**training, "commands": [task], "scores": {"loss": loss}}
        for task, loss in (("copy", 1.0), ("parity", 3.0))
    }
    parity = {"scores": {name.replace("copy", "parity"): 0.0 for name in scores}}
    run = collect.result(".", {"seed": 1}, trainings, [found, parity], ["parity"])
    assert (run["tokens"], run["seconds"]) == (10, {"train": 6})
    assert (run["scores"]["loss"], run["scores"]["beyond"]) == (1.0, 74.5)
    assert run["scores"]["parity_loss"] == 3.0


def test_choices_near_and_far_and_documents():
    groups = {
        "all": {"accuracy": 60.0, "choices": 10},
        "it": {"accuracy": 70.0, "choices": 5},
        "it: distance 1": {"accuracy": 1.0, "choices": 1},
        "distance 1": {"accuracy": 100.0, "choices": 3},
        "distance 2": {"accuracy": 50.0, "choices": 1},
        "distance >3": {"accuracy": 25.0, "choices": 6},
    }
    choices = write("choices", json.dumps({"accuracies": groups}))
    texts = [write(name, "a b c d", "e f g h", "", "i j k l") for name in ("ours", "theirs")]
    found = collect.documents([f"={choices}", f"_6={choices}"], *texts, "de")["scores"]
    assert (found["accuracy"], found["near"], found["far_6"]) == (60.0, 87.5, 25.0)
    assert found["accuracy_it"] == 70.0 and found["bleu"] == found["d_bleu"] == 100.0
    with pytest.raises(SystemExit, match="does not have as many lines as"):
        collect.documents([], texts[0], write("theirs", "a", "", "b", "", "c"), "de")


def test_the_lowest_mean_loss_of_values_without_a_failure_is_chosen():
    losses = {"a": 3.0, "b": 5.0, "c": 3.5, "d": 3.6, "e": 1.0}
    files = {n: write(n, json.dumps({"scores": {"loss": v}})) for n, v in losses.items()}
    failed = write("f", json.dumps({"error": "FloatingPointError"}))
    one, two, three = "--lr 1e-3", "--lr 2e-3", "--lr 4e-3"
    trials = [f"{one}={files['a']}", f"{one}={files['b']}", f"{two}={files['c']}"]
    trials += [f"{two}={files['d']}", f"{three}={files['e']}", f"{three}={failed}"]
    found = collect.choose(trials)
    assert found == {"value": "2e-3", "tried": {one: [3.0, 5.0], two: [3.5, 3.6]}}
