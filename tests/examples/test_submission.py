"""Own sentence tasks through the whole chain, and the files for the benchmarks' sites."""

import json
import random
import re

import pytest
import yaml
from support.predictions import of_binarised
from support.pretraining import sentence
from support.recipes import EXAMPLES, assert_error, bash, commands, error_of, succeed, write

from fairseq_posenc.training.sentence_tasks.recipes import submit
from fairseq_posenc.training.sentence_tasks.tasks import read_table, write_table

pytest_plugins = ["support.pretraining"]
RECIPE = EXAMPLES / "glue"


FEW = {"epochs": 2, "batch": 8, "lr": 1e-2}
OWN = {
    "pairs": {
        **{"train": "pairs.tsv", "valid": "dev.tsv", "test": "test.tsv", "id": "name"},
        **{"text": ["first", "second"], "label": "kind", "scores": ["accuracy", "f1"]},
        **{"positive": "animal", **FEW},
    },
    "length": {
        **{"train": "length.tsv", "valid": "length_dev.tsv", "test": {"hidden": "length_dev.tsv"}},
        **{"header": False, "text": 1, "label": 2, "regression": [1, 21], **FEW},
    },
}


@pytest.fixture(scope="module")
def own(prepared, pretrained, tmp_path_factory):
    """Folder with two own tasks, through prepare.sh into ``data``, finetune.sh and submit.sh."""
    folder, draw = tmp_path_factory.mktemp("own"), random.Random(5)
    sentences = [sentence(draw) for _ in range(80)]
    kinds = ["animal" if re.search("cat|dog", text) else "other" for text in sentences]
    pairs = list(zip(sentences, sentences[1:], kinds))
    write(folder / "pairs.tsv", ["first\tsecond\tkind", *map("\t".join, pairs[:40])])
    write(folder / "dev.tsv", ["first\tsecond\tkind", *map("\t".join, pairs[40:61])])
    tests = [f"{two}\tnumber {i}\t{one}" for i, (one, two, _) in enumerate(pairs[40:61])]
    write(folder / "test.tsv", ["second\tname\tfirst", *tests])
    lines = [f"{text}\t{len(text.split()) + 1.5}" for text in sentences]
    write(folder / "length.tsv", lines[:40])
    write(folder / "length_dev.tsv", lines[40:60])
    (folder / "own.yaml").write_text(yaml.safe_dump(OWN))
    given = ("own.yaml", prepared / "out" / "data-bin", "data", "--workers", "1")
    succeed(RECIPE / "prepare.sh", *given, cwd=folder)
    few = ("--seeds", "3", "--cpu", "--", "--num-workers", "0")
    for task in OWN:
        checkpoint = pretrained / "checkpoint_last.pt"
        given = (f"data/{task}", checkpoint, "runs", *few)
        result = succeed(RECIPE / "finetune.sh", *given, cwd=folder)
    (folder / "table").write_text(result.stdout[result.stdout.index("| model |") :])
    succeed(EXAMPLES / "clue" / "submit.sh", "data", "runs/tupe_r", "out", cwd=folder)
    return folder


def best(folder, task, score):
    """The best score in the log of a task's only run."""
    (path,) = (folder / "runs" / "tupe_r" / task).glob("lr0.01-batch*-seed3/train.log")
    log = path.read_text()
    return max(map(float, re.findall(rf'"valid_{score}": "([-\d.]+)"', log)))


def test_own_tasks_stand_in_the_table(own):
    header, _, row = (own / "table").read_text().split("\n")[:3]
    assert header == "| model | length (pearson) | pairs (accuracy) | average |"
    values = [best(own, "length", "pearson"), best(own, "pairs", "accuracy")]
    assert row.startswith("| tupe_r | {:.2f} | {:.2f} |".format(*values))


def test_the_packed_model_reads_raw_text_as_it_was_binarised(own):
    header, *rows = (own / "out" / "pairs.tsv").read_text().splitlines()
    answers = [row.split("\t") for row in rows]
    assert header == "index\tprediction"
    assert [index for index, _ in answers] == [f"number {i}" for i in range(21)]
    labels, probabilities = of_binarised(own / "data/pairs", own / "runs/tupe_r/pairs/model")
    assert [label for _, label in answers] == labels
    predictions = (own / "out" / "predictions" / "pairs.tsv").read_text().splitlines()
    found = [float(line.split("\t")[1]) for line in predictions]
    assert found == pytest.approx(probabilities, abs=2e-6)
    assert max(found) > min(found) + 1e-5  # the texts make a difference


def test_numbers_are_those_of_the_task(own):
    scipy = pytest.importorskip("scipy.stats", reason="an extra of the recipes")
    rows = (own / "out" / "hidden.tsv").read_text().splitlines()[1:]
    assert [row.split("\t")[0] for row in rows] == list(map(str, range(20)))
    raw = list(map(float, (own / "out" / "predictions" / "hidden.tsv").read_text().split()))
    assert [f"{min(max(value, 1), 21):.3f}" for value in raw] == [r.split("\t")[1] for r in rows]
    labels = [float(line.split("\t")[1]) for line in (own / "length_dev.tsv").open()]
    found = scipy.pearsonr(raw, labels)[0]
    assert 100 * found == pytest.approx(best(own, "length", "pearson"), abs=0.02)


def test_the_test_set_is_binarised_without_labels(own):
    data = own / "data" / "pairs"
    for name in ("input0/test.bin", "input1/test.idx", "test/pairs.tsv", "task.yaml"):
        assert (data / name).exists()
    assert not list((data / "label").glob("test*"))
    model = json.loads((own / "runs/tupe_r/length/model/model.json").read_text())
    assert model["head"]["bounds"] == [1, 21] and model["text"]["lowercase"] is True


def submitted(folder, recipe, task, name, test, predictions, labels):
    """What is written for a test set of a benchmark: the name of the file, and its bytes."""
    known = read_table(str(EXAMPLES / recipe / "tasks.yaml"))[task]
    source, entry = known.test[name][0], known.entry
    write_table(str(folder / "task.yaml"), task, {**entry, **labels, "test": {name: source}})
    arguments = (str(folder / "task.yaml"), name, write(folder / "test", test))
    out = folder / "out"
    submit(*arguments, write(folder / "predictions", predictions), str(out))
    (path,) = out.iterdir()
    return path.name, path.read_bytes()


NLI = {"labels": ["neutral", "contradiction", "entailment"]}


@pytest.mark.parametrize(
    "task, name, predictions, found, expected",
    [
        ("CoLA", "CoLA", ["1\t0.9", "0\t0.6"], {"labels": ["1", "0"]}, b"7\t1\n8\t0\n"),
        ("RTE", "RTE", ["not_entailment\t1"] * 2, {"labels": ["entailment", "not_entailment"]},
         b"7\tnot_entailment\n8\tnot_entailment\n"),
        ("MNLI", "MNLI-mm", ["neutral\t1", "entailment\t1"], NLI, b"7\tneutral\n8\tentailment\n"),
        ("MNLI", "AX", ["contradiction\t1"] * 2, NLI, b"7\tcontradiction\n8\tcontradiction\n"),
        ("STS-B", "STS-B", ["5.25", "3.14159"], {}, b"7\t5.000\n8\t3.142\n"),
    ],
)  # fmt: skip
def test_files_for_glue(tmp_path, task, name, predictions, found, expected):
    written = submitted(tmp_path, "glue", task, name, ["7\ta", "8\tb"], predictions, found)
    assert written == (f"{name}.tsv", b"index\tprediction\n" + expected)


@pytest.mark.parametrize(
    "task, name, label",
    [("AFQMC", "afqmc_predict", "0"), ("TNEWS", "tnews11_predict", "108"),
     ("TNEWS", "tnews10_predict", "108"), ("WSC", "cluewsc11_predict", "true"),
     ("IFLYTEK", "iflytek_predict", "110"), ("CSL", "csl_predict", "1"),
     ("CMNLI", "cmnli_predict", "neutral")],
)  # fmt: skip
def test_files_for_clue(tmp_path, task, name, label):
    found = {"labels": [label, "x"]}
    written = submitted(
        tmp_path, "clue", task, name, ["0\ta", '"b"\tb'], [f"{label}\t1"] * 2, found
    )
    lines = f'{{"id": 0, "label": "{label}"}}\n{{"id": "b", "label": "{label}"}}\n'
    assert written == (f"{name}.json", lines.encode())


def test_predictions_that_do_not_fit_are_one_line(tmp_path):
    def message(predictions):
        arguments = (tmp_path, "glue", "RTE", "RTE", ["7\ta", "8\tb"], predictions, NLI)
        return error_of(submitted, *arguments)

    assert "different numbers of lines" in message(["neutral\t1"])
    assert "line 2 is empty, so there is no prediction for 8" in message(["neutral\t1", ""])
    assert "predictions: line 1: 1 is no label of RTE" in message(["1\t1", "neutral\t1"])


def test_mistakes_and_what_would_run(tmp_path):
    script = RECIPE / "submit.sh"
    (tmp_path / "data" / "MNLI" / "test").mkdir(parents=True)
    chosen = ("data", "runs", "out", "--tasks", "MNLI")
    planned = commands(bash(script, "no", "data", "out", *chosen[3:], "--dry-run", cwd=tmp_path))
    assert planned[1][-1].endswith("out/predictions/MNLI.tsv")
    assert_error(bash(script, *chosen, cwd=tmp_path), "runs/MNLI/model; run finetune.sh")
    (tmp_path / "runs" / "MNLI" / "model").mkdir(parents=True)
    (tmp_path / "runs" / "MNLI" / "model" / "model.json").touch()
    (tmp_path / "data" / "MNLI" / "input1").mkdir()
    for name in ("MNLI-m", "AX"):
        (tmp_path / "data" / "MNLI" / "test" / f"{name}.tsv").touch()
    found = commands(bash(script, *chosen, "--dry-run", cwd=tmp_path))
    predictions = [words for words in found if words[:2] == ["fairseq-posenc", "predict"]]
    assert [words[words.index("--columns") + 1] for words in predictions] == ["2,3", "2,3"]
    assert not (tmp_path / "out").exists()
