"""Reading recipe: a training of choices, what would run, tables, mistakes."""

import json
import math

import pytest
from support.commands import TRAINING, USER_DIR, posenc, succeed
from support.multiple_choice import copa, extracted
from support.recipes import EXAMPLES, assert_error, bash, made_up_run, recipe_module, trainings

RECIPE = EXAMPLES / "reading"
PREPARE, FINETUNE = RECIPE / "prepare.sh", RECIPE / "finetune.sh"
table = recipe_module("common", "reading_scores")
made_up = recipe_module("reading", "made_up")


def test_choices_are_trained_by_fairseqs_own_task(tmp_path):
    """Answers by the made-up rule, two to four of them, with segments and the flags of C3."""
    text = tmp_path / "text"
    part = "In {} , 3 men of the {} side went {} on 5 May 1999 with 14 others and came back to town"
    lines = [part.format(1800 + n, "old", ("north", "away")[n % 2]) for n in range(40)]
    text.write_text("\n".join(lines) + "\n")
    for split in ("train", "dev"):
        made_up.main(["choices", str(text), str(tmp_path / f"{split}.json"), "--questions", "20"])
    extracted("c3", tmp_path)
    out = tmp_path / "out"
    columns = [f"input{number}" for number in range(5)]
    everything = "".join((out / c / "train").read_text() for c in columns)
    (tmp_path / "all").write_text(everything)
    succeed("preprocess", "--only-source", "--trainpref", tmp_path / "all", "--dict-only",
            "--destdir", tmp_path / "dict")  # fmt: skip
    for column in columns:
        texts = ["--trainpref", out / column / "train", "--validpref", out / column / "valid"]
        succeed("preprocess", "--only-source", *texts, "--srcdict", tmp_path / "dict" / "dict.txt",
                "--destdir", tmp_path / "data" / column)  # fmt: skip
    (tmp_path / "data" / "label").mkdir()
    for split in ("train", "valid"):
        (out / "label" / split).rename(tmp_path / "data" / "label" / f"{split}.label")
    shape = "--encoder-layers 1 --encoder-embed-dim 16 --encoder-ffn-embed-dim 16".split()
    flags, *_ = trainings(FINETUNE, "c3", "model.pt", "runs", cwd=tmp_path)
    names = ("--task", "--criterion", "--num-classes", "--shorten-method", "--init-token")
    given = [word for name in names for word in (name, flags[name])]
    trained = succeed(
        "train", tmp_path / "data", *USER_DIR, *TRAINING, *given, "--arch", "posenc_masked_lm",
        "--position-encoding", "rotary", "--num-segments", "2", *shape, "--max-positions", "40",
        "--encoder-attention-heads", "2", "--batch-size", "8", "--save-dir", tmp_path / "save",
    )  # fmt: skip
    (valid,) = trained.entries("valid")
    assert 0 <= float(valid["valid_accuracy"]) <= 100 and float(valid["valid_loss"]) < 3
    assert any(len(choice) < 4 for _, ((asked),), _ in json.loads(
        (tmp_path / "train.json").read_text()) for choice in [asked["choice"]])  # fmt: skip


@pytest.mark.parametrize(
    "task, rate, batch, epochs, decay, seeds, epsilon, separator",
    [
        ("squad", "1.5e-5", "48", "2", "0.01", 5, "1e-6", "2"),
        ("race", "1e-5", "16", "4", "0.1", 5, "1e-6", "2"),
        ("copa", "1e-5", "16", "10", "0.1", 5, "1e-6", "2"),
        ("qnli", "1e-5", "16", "10", "0.1", 5, "1e-6", "2"),
        ("cmrc", "3e-5", "32", "3", "0.01", 3, "1e-8", None),
        ("chid", "3e-5", "32", "3", "0.01", 3, "1e-8", None),
        ("c3", "2e-5", "24", "8", "0.01", 3, "1e-8", None),
    ],
)
def test_hyper_parameters_are_the_papers(
    tmp_path, task, rate, batch, epochs, decay, seeds, epsilon, separator
):
    runs = trainings(FINETUNE, f"reading/{task}", "mine/last.pt", "out", cwd=tmp_path)
    assert len({run["--save-dir"] for run in runs}) == len(runs) == seeds
    found = [runs[0].get(f"--{name}") for name in ("lr", "batch-size", "max-epoch", "weight-decay")]
    assert found == [rate, batch, epochs, decay]
    assert runs[0]["--adam-eps"] == epsilon and runs[0].get("--separator-token") == separator


@pytest.mark.parametrize("flags, longest, stride", [([], 512, 128), (["40", "8"], 40, 8)])
def test_the_decay_ends_with_the_last_window(tmp_path, flags, longest, stride):
    """Evaluate long passages, which have several windows; a batch is one of windows."""
    lengths = [5, 30, 36, 37, 60, 700]
    paragraphs = [
        {
            "context": " ".join("a" * length),
            "qas": [
                {"id": str(n), "question": "b ?", "answers": [{"text": "a", "answer_start": 2}]}
            ],
        }
        for n, length in enumerate(lengths)
    ]
    (tmp_path / "train.json").write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))
    (tmp_path / "dict.txt").write_text("a 1\nb 1\n? 1\n")
    data = tmp_path / "squad"
    made = posenc("reading", "prepare", data, "--dict", tmp_path / "dict.txt", "--train",
                  tmp_path / "train.json")  # fmt: skip
    assert made.status == 0, made.err
    given = [word for pair in zip(("--max-positions", "--stride"), flags) for word in pair]
    words = ("squad", "mine/last.pt", "out", "--seeds", "1", "--batch", "4", "--epochs", "10")
    (run,) = trainings(FINETUNE, *words, "--", *given, cwd=tmp_path)
    room = longest - 6  # <s>, the question's two tokens, </s> </s>, and </s> at the end
    windows = sum(1 + math.ceil(max(0, length - room) / stride) for length in lengths)
    assert windows > len(lengths)
    assert run["--total-num-update"] == str(10 * math.ceil(windows / 4))


def test_the_table_has_the_papers_statistics(tmp_path):
    runs, values = tmp_path / "mine", {"valid": 60, "valid1": 61, "valid2": 70, "valid3": 50}
    for seed, value in enumerate((70, 80, 95)):
        made_up_run(runs / "qnli", f"lr1e-5-batch16-seed{seed}", {"valid_accuracy": [value]})
        both = {"valid_exact": [1.0, 3.0], "valid_f1": [value, 2.0]}
        for task in ("squad", "cmrc"):
            made_up_run(runs / task, f"lr1e-5-batch8-seed{seed}", both)
    race = {f"{subset}_accuracy": [value] for subset, value in values.items()}
    made_up_run(runs / "race", "lr1e-5-batch8-seed1", race)
    found = table.render(tmp_path, "best")
    assert any("test, middle: accuracy 70.00, test, high: accuracy 50.00" in r for r in found)
    assert "| squad | mine | 1e-5 x 8 | 3 | exact 1.00 ± 0.00, f1 80.00 ± 12.58 |" in found
    assert any("| qnli | mine |" in line and "accuracy 80.00" in line for line in found)
    assert any("f1 81.67" in line and "mean of both 41.33" in line for line in found)
    assert any("f1 2.00" in line for line in table.render(tmp_path, "last"))


def test_data_of_other_subwords_are_refused(tmp_path):
    """Texts in characters, and a dictionary of words."""
    copa(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    given = ("copa", ".", "other", "data", "--workers", "1")
    (other / "dict.txt").write_text("rain 3\nSun. 2\n")
    result = bash(PREPARE, *given, cwd=tmp_path)
    assert_error(result, "other: no bpe.codes there; give the data-bin that")
    assert len(result.stderr.strip().split("\n")) == 1
    assert_error(bash(PREPARE, "squad", *given[1:], cwd=tmp_path), "other: no bpe.codes there")
    (other / "bpe.codes").write_text("#version: 0.2\nq u\n")
    (other / "text").write_text("lang en\n")
    result = bash(PREPARE, *given, cwd=tmp_path)
    assert_error(result, "fairseq-posenc stopped with status 1")
    assert "/input0/train: 100% of the tokens are not in the dictionary" in result.stderr


def test_mistakes_are_one_line(tmp_path):
    found = posenc("reading", "prepare", tmp_path / "d", "--dict", "x", "--train", tmp_path / "no")
    assert "cannot be read" in found.message()
    found = posenc("reading", "prepare", tmp_path / "d", "--dict", "x")
    assert "give --train, --valid or --test" in found.message()


def test_made_up_spans_follow_their_rule(tmp_path):
    lines = [
        f"in {year} , {year - 1890} men went north and so on for a" for year in range(1900, 1960)
    ]
    text = tmp_path / "text"
    text.write_text("\n".join(lines) + "\n")
    made = made_up.span_questions(str(text), 50, 20, 0.5, 1)["data"][0]["paragraphs"]
    assert len(made) == 50
    for paragraph in made:
        (asked,), words = paragraph["qas"], paragraph["context"].split()
        pattern = made_up.KINDS[asked["question"].split()[0]]
        same = [word for word in words if pattern.fullmatch(word)]
        assert [answer["text"] for answer in asked["answers"]] == same
        for answer in asked["answers"]:
            assert paragraph["context"][answer["answer_start"] :].split()[0] == answer["text"]
    assert 10 < sum(not paragraph["qas"][0]["answers"] for paragraph in made) < 40
