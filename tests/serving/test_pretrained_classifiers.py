"""``from_pretrained`` of classifiers, and ``fairseq-posenc predict``."""

import sys

import pytest
import torch
from support.conversion import write_ids
from support.model_folders import LABELS
from support.packed_models import numbers

from fairseq_posenc import cli
from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.serving.model_folder import read_model_folder

pytest_plugins = ["support.packed_models"]


EXAMPLES = [("the cat", "barks ."), ("g", "the cat sleeps . the do@@ g"), ("a cat", "cat")]
CUT = ("the cat sleeps . " * 4, "barks")


def expected_logits(model, examples, folder):
    """The logits on binarised data, as fairseq-validate computes them."""
    dictionary = model.task.source_dictionary
    for part in range(len(examples[0])):
        lines = [[*numbers(dictionary, example[part]), 2] for example in examples]
        (folder / f"input{part}").mkdir()
        write_ids(folder / f"input{part}" / "valid", lines)
    model.task.cfg.data, model.task.cfg.no_shuffle = str(folder), True
    model.task.load_dataset("valid")
    data = model.task.dataset("valid")
    inputs = data.collater([data[number] for number in range(len(examples))])["net_input"]
    name = model.task.cfg.classification_head_name
    with torch.no_grad():
        return model.model(**inputs, features_only=True, classification_head_name=name)[0]


@pytest.mark.parametrize("name", ["texts", "pairs", "roberta", "value"])
def test_predictions_are_those_of_fairseqs_validation(name, loaded, tmp_path, capsys):
    model = loaded(name)
    examples = [*EXAMPLES, CUT] if name == "texts" else EXAMPLES
    examples = examples if name in ("pairs", "roberta") else [(first,) for first, _ in examples]
    logits = expected_logits(model, examples, tmp_path).double()
    plain = [example[0] if len(example) == 1 else example for example in examples]
    found = model.predict(plain, max_tokens=20)
    if name == "value":
        assert [p.label for p in found] == [None] * 3
        assert [p.score for p in found] == pytest.approx(logits[:, 0].tolist(), abs=1e-5)
        return
    for prediction, probabilities in zip(found, logits.softmax(-1).tolist()):
        assert list(prediction.scores) == LABELS
        assert list(prediction.scores.values()) == pytest.approx(probabilities, abs=1e-5)
        assert prediction.label == LABELS[probabilities.index(max(probabilities))]
        assert prediction.score == max(prediction.scores.values())
    cut = "text 3 of the list: it has 18 tokens, and the model accepts 16; the rest is cut off"
    assert (cut in capsys.readouterr().err) == (name == "texts")


def test_examples_without_a_prediction_keep_their_place(loaded):
    said = []
    found = loaded("pairs").predict(
        [("cat", "dog"), ("", " "), CUT, ("cat", "")], lambda *reason: said.append(reason)
    )
    assert [prediction is None for prediction in found] == [False, True, True, False]
    assert [number for number, _ in said] == [1, 2]
    assert "empty" in said[0][1] and "has 20 tokens, and the model accepts 16" in said[1][1]


def test_the_folder_describes_the_head(folder_of):
    head = read_model_folder(str(folder_of("pairs"))).head
    assert head[:4] == ("sentence_classification_head", LABELS, False, 2)
    head = read_model_folder(str(folder_of("value"))).head
    assert head[:4] == ("sentence_classification_head", ["value"], True, 1)
    assert read_model_folder(str(folder_of("masked_lm"))).head is None
    card = (folder_of("pairs") / "README.md").read_text()
    assert "no, yes, maybe" in card and "predict --model packed --columns 1,2" in card


def test_the_command_writes_what_python_predicts(folder_of, loaded, tmp_path, capsys):
    model = loaded("pairs")
    rows = [("the  cat", "barks ."), ("", ""), ("cat", "dog")]
    table = "\ufeffid\ttext\tother\r\n" + "".join(f"1\t{a}\t{b}\n" for a, b in rows[:2])
    (tmp_path / "in.tsv").write_text(table + "\n1\tcat\tdog", encoding="utf-8")
    flags = ["--input", tmp_path / "in.tsv", "--output", tmp_path / "out.tsv", "--buffer", "2"]
    flags += ["--header", "--columns", "text,3", "--scores"]
    cli.main([str(word) for word in ("predict", "--model", folder_of("pairs"), *flags)])
    header, *lines = [line.split("\t") for line in (tmp_path / "out.tsv").read_text().split("\n")]
    assert header == ["label", "probability", *LABELS]
    assert lines[1] == lines[2] == lines[4] == [""]
    for line, prediction in zip([lines[0], lines[3]], model.predict([rows[0], rows[2]])):
        assert line[0] == prediction.label
        expected = [prediction.score, *prediction.scores.values()]
        assert list(map(float, line[1:])) == pytest.approx(expected, abs=1e-6)
    said = capsys.readouterr().err.splitlines()
    assert [line.partition(":")[0] for line in said] == ["line 3", "line 4"]


@pytest.mark.parametrize("stream", ["stdin", "stdout"])
def test_a_closed_stream_is_one_line(folder_of, tmp_path, monkeypatch, stream):
    (tmp_path / "in").write_text("cat\tdog\n")
    given = [] if stream == "stdin" else ["--input", str(tmp_path / "in")]
    monkeypatch.setattr(sys, stream, None)
    with pytest.raises(UsageError, match="standard (in|out)put: is closed; give"):
        cli.main(["predict", "--model", str(folder_of("pairs")), *given])


def test_an_ensemble_averages_the_logits(folder_of, loaded, tmp_path, capsys):
    rows = [("the cat", "barks ."), ("cat", "dog sleeps")]
    (tmp_path / "in").write_text("".join("\t".join(row) + "\n" for row in rows))
    flags = ["--input", tmp_path / "in", "--output", tmp_path / "out", "--scores"]
    models = ["--model", folder_of("pairs"), "--ensemble", folder_of("roberta")]
    cli.main([str(word) for word in ("predict", *models, *flags)])
    both = [loaded(name).class_logits(rows) for name in ("pairs", "roberta")]
    assert not torch.equal(both[0][0], both[1][0])
    lines = (tmp_path / "out").read_text().splitlines()[1:]
    for line, one, two in zip(lines, *both):
        expected = ((one.double() + two.double()) / 2).softmax(-1).tolist()
        label, _, *found = line.split("\t")
        assert list(map(float, found)) == pytest.approx(expected, abs=2e-6)
        assert label == LABELS[expected.index(max(expected))]
    other = ["--model", folder_of("pairs"), "--ensemble", folder_of("texts")]
    with pytest.raises(SystemExit, match="--ensemble .*packed: is a classifier for another task"):
        cli.main([str(word) for word in ("predict", *other, *flags)])


def test_values_of_a_regression_are_a_column(folder_of, loaded, tmp_path):
    (tmp_path / "in").write_text("the cat\ncat\n")
    flags = ["--input", tmp_path / "in", "--output", tmp_path / "out"]
    cli.main([str(word) for word in ("predict", "--model", folder_of("value"), *flags)])
    values = [prediction.score for prediction in loaded("value").predict(["the cat", "cat"])]
    assert list(map(float, (tmp_path / "out").read_text().split())) == pytest.approx(
        values, abs=1e-6
    )
    head = read_model_folder(str(folder_of("value"))).head
    scaled = head._replace(bounds=(-1.0, 5.0))
    assert [scaled.value(value) for value in values] == [6 * value - 1 for value in values]
