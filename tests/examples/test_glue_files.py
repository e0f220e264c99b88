"""GLUE and SuperGLUE recipes: their original files, read."""

import csv
import json

import pytest
from conftest import SHARED
from support.glue_files import HEADERS, RECIPE, TASKS, made_up

from fairseq_posenc.training.sentence_tasks import files
from fairseq_posenc.training.sentence_tasks.tasks import read_table


def read(task, path):
    return [[*e.texts, e.label] for e in files.examples(TASKS[task], str(path))]


@pytest.mark.parametrize("task", sorted(TASKS))
def test_sentences_and_labels_of_every_layout(tmp_path, task):
    wanted = made_up(tmp_path, task, {"train": 7})["train"]
    single = task in ("CoLA", "SST-2")
    found = read(task, tmp_path / task / "train.tsv")
    assert [example[:-1] for example in found] == [
        [one] if single else [one, two] for one, two, _ in wanted
    ]
    assert [e[-1] for e in found] == [label for _, _, label in wanted]


def test_quirks_of_the_real_files(tmp_path, capsys):
    path = tmp_path / "file.tsv"
    quoted = ['1\t2\t3\tWhat is "x?\tWhy "" y?\t1', "4\t5\t6\tcut short", "7\t8\t9\ta\u2028b\tc\t0"]
    path.write_bytes(("\ufeff" + "\r\n".join(["\t".join(HEADERS["QQP"]), *quoted])).encode())
    assert read("QQP", path) == [['What is "x?', 'Why "" y?', "1"], ["a\u2028b", "c", "0"]]
    assert "2 examples, 1 lines left out" in capsys.readouterr().err
    # what a reader that minds quotation marks would make of it: another number of examples
    with open(path, encoding="utf-8", newline="") as stream:
        assert len(list(csv.reader(stream, delimiter="\t", quotechar='"'))) == 4


def test_validation_files_of_mnli_have_more_columns(tmp_path):
    header = [*HEADERS["MNLI"][:-1], "label2", "label3", "label4", "label5", "gold_label"]
    cells = ["x"] * 8 + ["one", "two", "neutral", "a", "b", "c", "d"]
    lines = ["\t".join(header), "\t".join([*cells, "entailment"]), "\t".join([*cells, "-"])]
    path = tmp_path / "dev_matched.tsv"
    path.write_text("\n".join(lines) + "\n")
    assert read("MNLI", path) == [["one", "two", "entailment"]]


@pytest.mark.parametrize(
    "task, text, words",
    [
        ("RTE", "index\tsentence1\tsentence2\n1\ta\tb\n", "no column label, but index, sentence1"),
        ("RTE", "index\tsentence1\tsentence2\tlabel\n", "no examples"),
        ("STS-B", "\t".join(HEADERS["STS-B"]) + "\n" + "\t".join("0123456xyz") + "\n", "'z'"),
        ("CoLA", "", "no examples"),
    ],
)
def test_a_file_of_another_layout_is_one_line(tmp_path, task, text, words):
    path = tmp_path / "train.tsv"
    path.write_text(text)
    with pytest.raises(SystemExit, match=f"train.tsv: .*{words}"):
        files.extract(TASKS[task], str(tmp_path), str(tmp_path / "out"))
    assert not list((tmp_path / "out").glob("*/*"))


@pytest.mark.skipif(not (SHARED / "data" / "glue").exists(), reason="no real data here")
@pytest.mark.parametrize(
    "task, train, dev, positive",
    [("CoLA", 8551, 1043, 721), ("MRPC", 3668, 408, 279), ("SST-2", 67349, 872, 444)],
)
def test_real_files_have_their_published_sizes(task, train, dev, positive):
    folder = SHARED / "data" / "glue" / task
    assert len(read(task, folder / "train.tsv")) == train
    found = read(task, folder / "dev.tsv")
    assert len(found) == dev
    assert sum(example[-1] == "1" for example in found) == positive


SUPERGLUE = read_table(str(RECIPE / "superglue.yaml"))


@pytest.mark.parametrize(
    "task, record, expected",
    [
        ("BoolQ", {"question": "is it", "passage": "It is.", "label": True}, ["is it", "It is."]),
        ("CB", {"premise": "a", "hypothesis": "b", "label": "neutral"}, ["a", "b"]),
        ("RTE", {"premise": "a", "hypothesis": "b", "label": "entailment"}, ["a", "b"]),
        (
            "WiC",
            {"word": "bank", "sentence1": "The bank.", "sentence2": "A bank!", "label": False},
            ["bank: The bank.", "A bank!"],
        ),
    ],
)
def test_superglue_is_read_as_published(tmp_path, task, record, expected):
    path = tmp_path / "train.jsonl"
    path.write_text(json.dumps({**record, "idx": 7, "version": 1.1}) + "\n")
    (found,) = files.examples(SUPERGLUE[task], str(path))
    assert found.texts == expected and found.label == str(record["label"]).replace(
        "True", "true"
    ).replace("False", "false")
    (found,) = files.examples(SUPERGLUE[task], str(path), labelled=False)
    assert found.texts == expected and found.id == "7"
