"""Reading recipe: published files of multiple choice, what would run, tables, mistakes."""

import json
import os

import pytest
from commands import TRAINING, USER_DIR, posenc, succeed
from recipes import EXAMPLES, assert_error, bash, commands, error_of, flags_of, recipe_module

RECIPE = EXAMPLES / "reading"
PREPARE, FINETUNE = RECIPE / "prepare.sh", RECIPE / "finetune.sh"
choices = recipe_module("reading", "choices")
table = recipe_module("reading", "table")
made_up = recipe_module("reading", "made_up")

ARTICLE = {
    "article": "A cat\nsat.",
    "questions": ["Who sat?", "The _ sat."],
    "options": [["cat", "dog", "cow", "man"], ["old", "new", "big", "cat"]],
    "answers": ["A", "D"],
    "id": "high1.txt",
}
C3 = [
    [
        ["男：你好。", "女：再见。"],
        [{"question": "谁？", "choice": ["男", "女"], "answer": "女"}],
        "1",
    ],
    [["天"], [{"question": "何？", "choice": ["地", "天", "人"], "answer": "天"}], "2"],
]
CHID = {
    "content": "他#idiom#。我们#idiom#地走。",
    "candidates": [["一心一意", "二话不说"], ["三心二意", "四面八方"]],
    "groundTruth": ["二话不说", "三心二意"],
    "realCount": 2,
}


COPA = {"premise": "It rained.", "choice1": "Sun.", "choice2": "Wet.", "label": 1, "idx": 0}


def race(folder, schools=("high",), **changes):
    for split in ("train", "dev", "test"):
        for school in schools:
            (folder / split / school).mkdir(parents=True)
            (folder / split / school / "1.txt").write_text(json.dumps({**ARTICLE, **changes}))
    return folder


def copa(folder, **changes):
    for split in ("train", "val"):
        lines = [{**COPA, "question": asked, **changes} for asked in ("cause", "effect")]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / f"{split}.jsonl").write_text(text)
    return folder


def c3(folder, records=C3):
    for split in ("train", "dev"):
        (folder / f"{split}.json").write_text(json.dumps(records))
    return folder


def chid(folder, **changes):
    for split in ("train", "dev"):
        line = json.dumps({**CHID, **changes}, ensure_ascii=False)
        (folder / f"{split}.json").write_text(line + "\n", encoding="utf-8")
    return folder


def extracted(task, folder):
    out = folder / "out"
    choices.extract(task, str(folder), str(out))
    return {
        str(path.relative_to(out)): path.read_text(encoding="utf-8").splitlines()
        for path in out.rglob("*")
        if path.is_file() and "ids" not in path.parts
    }


def test_race_fills_blanks_and_has_a_labelled_test_set(tmp_path):
    found = extracted("race", race(tmp_path))
    assert found["input0/valid1"] == ["A cat sat."] * 2
    assert found["input1/train"] == ["Who sat? cat", "The old sat."]
    assert found["input4/train"] == ["Who sat? man", "The cat sat."]
    assert found["label/train"] == ["0", "3"]
    assert found["splits"] == ["train valid valid1"] and found["choices"] == ["4"]


def test_the_schools_of_race_are_scored_separately_where_both_are_there(tmp_path):
    found = extracted("race", race(tmp_path, ("middle", "high")))
    assert found["splits"] == ["train valid valid1 valid2 valid3"]
    assert [len(found[f"label/valid{n}"]) for n in ("", 1, 2, 3)] == [4, 4, 2, 2]


def test_copa_asks_for_causes_and_effects(tmp_path):
    found = extracted("copa", copa(tmp_path))
    assert found["input0/train"] == ["It rained."] * 2 and found["label/valid"] == ["1", "1"]
    assert found["input2/train"] == [
        "What was the cause of this? Wet.",
        "What happened as a result? Wet.",
    ]


def test_c3_has_empty_lines_for_choices_that_are_not_there(tmp_path):
    found = extracted("c3", c3(tmp_path))
    assert found["input0/train"] == ["男：你好。 女：再见。", "天"]
    assert found["input3/train"] == ["", "何？ 人"]
    assert found["label/train"] == ["1", "1"] and found["splits"] == ["train valid"]


def test_chid_has_an_example_for_each_blank(tmp_path):
    found = extracted("chid", chid(tmp_path))
    assert found["input0/train"] == ["他_。我们地走。", "他。我们_地走。"]
    assert found["input1/train"] == ["他一心一意。", "我们三心二意地走。"]
    assert found["label/train"] == ["1", "0"]


def test_clue_has_the_answers_of_chid_beside_it(tmp_path):
    content = {"content": ["他#idiom01#。", "我#idiom02#。"], "candidates": ["一", "二", "三"]}
    for split in ("train", "dev"):
        (tmp_path / f"{split}.json").write_text(json.dumps(content) + "\n")
        (tmp_path / f"{split}_answer.json").write_text('{"#idiom01#": 2, "#idiom02#": 0}')
    found = extracted("chid", tmp_path)
    assert found["label/train"] == ["2", "0"] and found["input3/valid"] == ["他三。", "我三。"]


@pytest.mark.parametrize(
    "task, write, words",
    [
        ("race", lambda f: race(f, options=[["a"] * 4, ["b"] * 3]), "question 1: has 3 choices"),
        ("race", lambda f: race(f, answers=["A", "E"]), "question 1: its answer is none of the 4"),
        ("race", lambda f: race(f, answers=["A"]), "1.txt: has different numbers"),
        ("race", lambda f: race(f, article=" "), "question 0: the passage or a choice is empty"),
        ("race", lambda f: race(f, article=3), "question 0: passage, question and choices"),
        ("race", lambda f: f, "has none of train, the train set of race"),
        ("c3", lambda f: c3(f, [[["x"], [{"question": "q"}], "1"]]), "record 0: 'choice'"),
        (
            "c3",
            lambda f: c3(f, [[["x"], [{"question": "q", "choice": list("abcde")}], "1"]]),
            "record 0: question 0: has 5 choices, and questions of this task have 2 to 4",
        ),
        (
            "c3",
            lambda f: c3(f, [[["x"], [{"question": "q", "choice": ["a", "b"]}], "1"]]),
            "record 0: question 0: has no answer",
        ),
        ("chid", lambda f: chid(f, groundTruth=["x", "y"]), "line 1: blank 0: its answer is none"),
        ("chid", lambda f: chid(f, content="x"), "line 1: has no blank"),
        ("chid", lambda f: chid(f, groundTruth=["x"]), "line 1: has 2 blanks, but not as many"),
        ("chid", lambda f: chid(f, candidates=[["x"]]), "line 1: has 2 blanks, but not as many"),
        ("chid", lambda f: chid(f, candidates=[]), "line 1: content, candidates and groundTruth"),
        ("chid", lambda f: chid(f, groundTruth=None), "line 1: blank 0: has no answer"),
        ("race", lambda f: race(f, options=None), "1.txt: questions, options and answers have to"),
        ("race", lambda f: race(f, options=[3, 4]), "question 0: its choices have to be a list"),
        ("race", lambda f: race(f, answers=None), "question 0: has no answer"),
        ("c3", lambda f: c3(f, {"a": 1}), "train.json: has to be a list of records"),
        ("copa", lambda f: copa(f, label="1"), "line 1: its answer has to be the number of a"),
        ("copa", lambda f: copa(f, label=2), "line 1: its answer is none of the 2"),
        ("copa", lambda f: copa(f, question="why"), "line 1: has no 'why'; expected premise"),
    ],
)
def test_damaged_files_are_one_line(tmp_path, task, write, words):
    message = error_of(choices.extract, task, str(write(tmp_path)), str(tmp_path / "out"))
    assert words in message and str(tmp_path) in message


def test_more_choices_than_in_training_are_one_line(tmp_path):
    c3(tmp_path, C3[:1])
    (tmp_path / "dev.json").write_text(json.dumps(C3))
    message = error_of(choices.extract, "c3", str(tmp_path), str(tmp_path / "out"))
    assert "dev.json: record 1: question 0: has 3 choices, the training set 2" in message


def test_long_choices_keep_their_end_and_none_is_lost(tmp_path):
    extracted("c3", c3(tmp_path))
    out = tmp_path / "out"
    choices.cut(str(out), str(out), str(tmp_path / "cut"), 1)
    assert (tmp_path / "cut" / "input3" / "train").read_text().split("\n") == ["", "人", ""]
    assert (tmp_path / "cut" / "input0" / "train").read_text().startswith("男：你好。 女")
    (out / "input3" / "train").rename(tmp_path / "text")
    (tmp_path / "pieces").mkdir()
    for number in range(4):
        os.symlink(out / f"input{number}", tmp_path / "pieces" / f"input{number}")
    (out / "input3" / "train").write_text("\n \n")
    (out / "input2" / "train").write_text("\n\n")
    with pytest.raises(SystemExit, match="record 0: question 0: '谁？ 女' has no symbol"):
        texts = tmp_path / "texts"
        choices.extract("c3", str(tmp_path), str(texts))
        choices.cut(str(texts), str(tmp_path / "pieces"), str(tmp_path / "cut"), 9)


def test_choices_are_trained_by_fairseqs_own_task(tmp_path):
    """Those of the made-up rule, two to four of them, with segments and the flags of C3."""
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
    result = bash(FINETUNE, "c3", "model.pt", "runs", "--dry-run", cwd=tmp_path)
    flags = flags_of(next(c for c in commands(result) if c[0] == "fairseq-train"))
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


# --- what would run


@pytest.mark.parametrize(
    "task, rate, batch, epochs, decay, seeds, epsilon, separator",
    [
        ("squad", "1.5e-5", "48", "2", "0.01", 5, "1e-6", "2"),
        ("race", "1e-5", "16", "4", "0.1", 5, "1e-6", "2"),
        ("copa", "1e-5", "16", "10", "0.1", 5, "1e-6", "2"),
        ("cmrc", "3e-5", "32", "3", "0.01", 3, "1e-8", None),
        ("chid", "3e-5", "32", "3", "0.01", 3, "1e-8", None),
        ("c3", "2e-5", "24", "8", "0.01", 3, "1e-8", None),
    ],
)
def test_hyper_parameters_are_the_papers(
    tmp_path, task, rate, batch, epochs, decay, seeds, epsilon, separator
):
    result = bash(FINETUNE, f"reading/{task}", "mine/last.pt", "out", "--dry-run", cwd=tmp_path)
    runs = [flags_of(command) for command in commands(result) if command[0] == "fairseq-train"]
    assert len({run["--save-dir"] for run in runs}) == len(runs) == seeds
    found = [runs[0].get(f"--{name}") for name in ("lr", "batch-size", "max-epoch", "weight-decay")]
    assert found == [rate, batch, epochs, decay]
    assert runs[0]["--adam-eps"] == epsilon and runs[0].get("--separator-token") == separator


def test_the_table_has_the_papers_statistics(tmp_path):
    for task, rows in (("squad", (70, 80, 95)), ("cmrc", (70, 80, 95))):
        for seed, value in enumerate(rows):
            folder = tmp_path / "mine" / task / f"lr1e-5-batch8-seed{seed}"
            folder.mkdir(parents=True)
            entries = [
                {"epoch": 1, "valid_exact": "1.0", "valid_f1": str(value)},
                {"epoch": 2, "valid_exact": "3.0", "valid_f1": "2.0"},
            ]
            lines = "".join(f"| INFO | valid | {json.dumps(entry)}\n" for entry in entries)
            (folder / "train.log").write_text(lines)
    folder = tmp_path / "mine" / "race" / "lr1e-5-batch8-seed1"
    folder.mkdir(parents=True)
    values = {"valid": "60.0", "valid1": "61.0", "valid2": "70.0", "valid3": "50.0"}
    lines = [json.dumps({"epoch": 1, f"{k}_accuracy": v}) for k, v in values.items()]
    (folder / "train.log").write_text("\n".join(lines))
    found = table.render(tmp_path, "best")
    assert any("test, middle: accuracy 70.00, test, high: accuracy 50.00" in r for r in found)
    assert "| squad | mine | 1e-5 x 8 | 3 | exact 1.00 ± 0.00, f1 80.00 ± 12.58 |" in found
    assert any("f1 81.67" in line and "mean of both 41.33" in line for line in found)
    assert any("f1 2.00" in line for line in table.render(tmp_path, "last"))


def test_mistakes_are_one_line(tmp_path):
    def mistake(script, *words):
        return bash(script, *words, cwd=tmp_path)

    assert_error(mistake(PREPARE, "glue", "a", "b", "c"), "glue: no such task; expected squad")
    assert_error(mistake(PREPARE, "squad", "a", "b", "c"), "a: no such folder")
    assert_error(mistake(FINETUNE, "x", "y", "z"), "x: is not the folder of a task")
    found = posenc("reading", "prepare", tmp_path / "d", "--dict", "x", "--train", tmp_path / "no")
    assert "no: cannot be read" in found.message() or "cannot be read" in found.message()
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
