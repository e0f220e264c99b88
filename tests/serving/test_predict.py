"""Classifiers in model folders: the command ``predict``, and the hub interface."""

import pytest
import torch
from support.conversion import write_ids
from support.model_folders import LABELS
from support.packed_models import numbers

from fairseq_posenc import cli

pytest_plugins = ["support.packed_models"]
pytestmark = pytest.mark.formulas


HEAD = "sentence_classification_head"
EXAMPLES = [("the cat", "barks ."), ("g", "the cat sleeps . the do@@ g"), ("a cat", "cat")]
CUT = ("the cat sleeps . " * 4, "barks")


def predicted(folder, tmp_path, rows, *flags):
    """The output of the command ``predict``: the columns of each line."""
    (tmp_path / "in").write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
    words = ["predict", "--model", folder, "--input", tmp_path / "in", *flags]
    cli.main([str(word) for word in (*words, "--output", tmp_path / "out")])
    return [line.split("\t") for line in (tmp_path / "out").read_text().splitlines()]


def expected_logits(hub, examples, folder):
    """The logits for binarised data, as fairseq-validate computes them."""
    dictionary = hub.task.source_dictionary
    for part in range(len(examples[0])):
        lines = [[*numbers(dictionary, example[part]), 2] for example in examples]
        (folder / f"input{part}").mkdir()
        write_ids(folder / f"input{part}" / "valid", lines)
    hub.task.cfg.data, hub.task.cfg.no_shuffle = str(folder), True
    hub.task.load_dataset("valid")
    data = hub.task.dataset("valid")
    inputs = data.collater([data[number] for number in range(len(examples))])["net_input"]
    name = hub.task.cfg.classification_head_name
    with torch.no_grad():
        return hub.model(**inputs, features_only=True, classification_head_name=name)[0]


@pytest.mark.parametrize("name", ["texts", "pairs", "roberta", "bare", "value"])
def test_predictions_are_those_of_fairseqs_validation(name, loaded, folder_of, tmp_path, capsys):
    hub, two = loaded(name), name in ("pairs", "roberta", "bare")
    examples = [*EXAMPLES, CUT] if name == "texts" else EXAMPLES
    examples = examples if two else [(first,) for first, _ in examples]
    logits = expected_logits(hub, examples, tmp_path).double()
    lines = predicted(folder_of(name), tmp_path, examples, "--scores", "--max-tokens", "20")[1:]
    cut = "line 4: it has 18 tokens, and the model accepts 16; the rest is cut off"
    assert (cut in capsys.readouterr().err) == (name == "texts")
    for line, example, wanted in zip(lines, examples, logits):
        with torch.no_grad():
            found = hub.predict(HEAD, hub.encode(*example), return_logits=True)[0].tolist()
            values = hub.predict(HEAD, hub.encode(*example)).exp()[0].tolist()
        assert found == pytest.approx(wanted.tolist(), abs=1e-5)
        if name == "value":
            assert line == [f"{found[0]:.6f}"]
            assert hub.folder.head._replace(bounds=(-1.0, 5.0)).value(0.5) == 2.0
            continue
        label, score, *scores = line
        assert list(map(float, scores)) == pytest.approx(values, abs=1e-6)
        assert label == LABELS[values.index(max(values))] and score == max(scores)


def test_lines_without_a_prediction_stay_empty(folder_of, tmp_path, capsys):
    rows = [("id", "text", "other"), ("1", "the  cat", "barks ."), ("1", "", ""), ("1", *CUT)]
    flags = ["--buffer", "2", "--header", "--columns", "text,3"]
    lines = predicted(folder_of("pairs"), tmp_path, [*rows, ("1", "cat", "")], *flags)
    assert [bool(line[0]) for line in lines] == [True, False, False, True]
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith("line 3: it is empty")
    assert said[1].startswith("line 4: it has 20 tokens, and the model accepts 16")
    alone = predicted(folder_of("pairs"), tmp_path, [("the cat", "barks .")])
    assert alone == lines[:1]


def test_an_ensemble_averages_the_logits(folder_of, loaded, tmp_path):
    rows = [("the cat", "barks ."), ("cat", "dog sleeps")]
    further = ["--ensemble", folder_of("roberta"), "--scores"]
    lines = predicted(folder_of("pairs"), tmp_path, rows, *further)[1:]
    for line, row in zip(lines, rows):
        with torch.no_grad():
            hubs = map(loaded, ("pairs", "roberta"))
            one, two = (hub.predict(HEAD, hub.encode(*row), True)[0].double() for hub in hubs)
        assert not torch.equal(one, two)
        expected = ((one + two) / 2).softmax(-1).tolist()
        assert list(map(float, line[2:])) == pytest.approx(expected, abs=2e-6)
        assert line[0] == LABELS[expected.index(max(expected))]
    with pytest.raises(SystemExit, match="--ensemble .*packed: is a classifier for another task"):
        predicted(folder_of("pairs"), tmp_path, rows, "--ensemble", folder_of("texts"))


def test_a_text_that_a_further_model_does_not_accept_is_named(folder_of, tmp_path, capsys):
    """RoBERTa's double separator makes a pair one token longer."""
    rows = [("cat " * 6, "cat " * 7)]
    assert len(predicted(folder_of("pairs"), tmp_path, rows)[0]) == 2
    further = ["--ensemble", folder_of("roberta")]
    assert predicted(folder_of("pairs"), tmp_path, rows, *further) == [[""]]
    assert "line 1: it has 17 tokens, and the model accepts 16" in capsys.readouterr().err


WRONG_TABLES = {
    "another family": ("language_modeling", b"", [], "a model of --task language_modeling without"),
    "no classifier": ("masked_lm", b"", [], "without a classification head"),
    "not UTF-8": ("texts", b"cat\n\xff\n", [], "in.tsv: line 2: not UTF-8 (byte 1"),
    "a short line": ("pairs", b"a\tb\nc\n", [], "line 2 of the table: has no column 2"),
    "no such name": ("texts", b"a\tb\n", ["--header", "--columns", "c"], "no column 'c', but a, b"),
    "a name without header": ("texts", b"a\n", ["--columns", "a"], "for names, give --header"),
    "column 0": ("texts", b"a\n", ["--columns", "0"], "'0' is no number from 1 on"),
    "one text for a pair": ("pairs", b"a\n", ["--columns", "1"], "was trained on 2 texts"),
    "an absent table": ("texts", None, [], "in.tsv: cannot be read (No such file"),
    "no tokens": ("texts", b"a\n", ["--max-tokens", "0"], "--max-tokens 0: must be at least 1"),
}


@pytest.mark.parametrize("case", WRONG_TABLES)
def test_wrong_tables_are_one_line_and_write_nothing(case, folder_of, tmp_path):
    name, table, flags, message = WRONG_TABLES[case]
    if table is not None:
        (tmp_path / "in.tsv").write_bytes(table)
    flags = ["--input", tmp_path / "in.tsv", "--output", tmp_path / "out", *flags]
    with pytest.raises(SystemExit) as error:
        cli.main([str(word) for word in ("predict", "--model", folder_of(name), *flags)])
    assert message in str(error.value) and "\n" not in str(error.value)
    assert not (tmp_path / "out").exists()
