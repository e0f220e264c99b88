"""Multiple choice from the published files: RACE, C3, CHID, COPA and QNLI, and their mistakes."""

import json

import pytest
from support.recipes import recipe_module

choices = recipe_module("reading", "choices")

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
QNLI = [
    ("Who?", "A cow.", "not_entailment"),
    ("Why?", "So.", "entailment"),
    ("Who?", "A cat.", "entailment"),
    *(("Why?", f"b{number}", "not_entailment") for number in (1, 2, 3, 4)),
    *(("When?", sentence, "entailment") for sentence in ("Now.", "Then.")),
    ("Where?", "No.", "not_entailment"),
    ("How?", "Yes.", "entailment"),
]


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
    choices.main(task, str(folder), str(out))
    return {
        str(path.relative_to(out)): path.read_text(encoding="utf-8").splitlines()
        for path in out.rglob("*")
        if path.is_file()
    }


def qnli(folder, *rows, header="index\tquestion\tsentence\tlabel"):
    rows = rows or QNLI
    for split in ("train", "dev"):
        lines = ["\t".join((str(number), *row)) for number, row in enumerate(rows)]
        (folder / f"{split}.tsv").write_text("\n".join([header, *lines]) + "\n")
    return folder


def mistake(task, folder):
    """The one line with which a task's files are refused."""
    with pytest.raises(SystemExit) as caught:
        choices.main(task, str(folder), str(folder / "out"))
    message = str(caught.value)
    assert "\n" not in message and str(folder) in message
    return message


def test_race_fills_blanks_and_has_a_labelled_test_set(tmp_path):
    found = extracted("race", race(tmp_path))
    assert found["input0/valid1"] == ["A cat sat."] * 2
    assert found["input1/train"] == ["Who sat? cat", "The old sat."]
    assert found["input4/train"] == ["Who sat? man", "The cat sat."]
    assert found["label/train"] == ["0", "3"]
    assert "label/valid1" in found and "label/valid2" not in found


def test_the_schools_of_race_are_scored_separately_where_both_are_there(tmp_path):
    found = extracted("race", race(tmp_path, ("middle", "high")))
    assert [len(found[f"label/valid{n}"]) for n in ("", 1, 2, 3)] == [4, 4, 2, 2]


def test_copa_asks_for_causes_and_effects(tmp_path):
    found = extracted("copa", copa(tmp_path))
    assert found["input0/train"] == ["It rained."] * 2 and found["label/valid"] == ["1", "1"]
    assert found["input2/train"] == [
        "What was the cause of this? Wet.",
        "What happened as a result? Wet.",
    ]


def test_qnli_ranks_the_sentences_of_a_question(tmp_path, capsys):
    found = extracted("qnli", qnli(tmp_path))
    assert found["input0/train"] == ["Who?", "Why?"] and found["label/train"] == ["1", "0"]
    assert [found[f"input{n}/train"] for n in (1, 2, 3, 4)] == [
        ["A cow.", "So."],
        ["A cat.", "b1"],
        ["", "b2"],
        ["", "b3"],
    ]
    # "When?" has two answers, "Where?" none, "How?" nothing else; "Why?" has a fifth sentence
    assert "train.tsv: left out 3 without a question" in capsys.readouterr().err


def test_c3_has_empty_lines_for_choices_that_are_not_there(tmp_path):
    found = extracted("c3", c3(tmp_path))
    assert found["input0/train"] == ["男：你好。 女：再见。", "天"]
    assert found["input3/train"] == ["", "何？ 人"]
    assert found["label/train"] == ["1", "1"] and "label/valid1" not in found


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
        (
            "race",
            lambda f: race(f, options=[["a"] * 4, ["b"] * 5]),
            "train: high/1.txt: ValueError: has 5",
        ),
        (
            "race",
            lambda f: race(f, answers=["A", "E"]),
            "high/1.txt: ValueError: 'E' is not in list",
        ),
        ("race", lambda f: race(f, answers=["A"]), "1.txt: ValueError: has different numbers"),
        ("race", lambda f: race(f, article=" "), "1.txt: ValueError: a text is empty"),
        ("race", lambda f: race(f, article=3), "1.txt: AttributeError: 'int'"),
        ("race", lambda f: f, "0 questions for train, 0 with answers"),
        (
            "c3",
            lambda f: c3(f, [[["x"], [{"question": "q", "choice": list("abcde")}], "1"]]),
            "record 0: ValueError: has 5 choices, not 2 to 4",
        ),
        (
            "c3",
            lambda f: c3(f, [[["x"], [{"question": "q", "choice": ["a", "b"]}], "1"]]),
            "1 questions for train, 0 with answers",
        ),
        ("chid", lambda f: chid(f, content="x"), "line 1: ValueError: has 0 blanks"),
        ("chid", lambda f: chid(f, candidates=[]), "line 1: IndexError"),
        ("copa", lambda f: copa(f, label="1"), "line 1: TypeError"),
        (
            "copa",
            lambda f: copa(f, label=2),
            "line 1: ValueError: the answer 2 is none of 2 choices",
        ),
        ("qnli", lambda f: qnli(f, ("q", "s", "yes")), "'q': KeyError: 'yes'"),
        ("qnli", lambda f: qnli(f, header="a\tb"), "KeyError: 'question'"),
        ("qnli", lambda f: qnli(f, *QNLI[-1:]), "0 questions for train, 0 with answers"),
    ],
)
def test_damaged_files_are_one_line(tmp_path, task, write, words):
    assert words in mistake(task, write(tmp_path))


def test_what_is_no_json_is_one_line(tmp_path):
    (copa(tmp_path) / "val.jsonl").write_text("{}\n{")
    assert "val.jsonl: line 1: KeyError" in mistake("copa", tmp_path)
    (tmp_path / "val.jsonl").write_text("{")
    assert "val.jsonl: line 1: is no JSON" in mistake("copa", tmp_path)


def test_more_choices_than_in_training_are_one_line(tmp_path):
    c3(tmp_path, C3[:1])
    (tmp_path / "dev.json").write_text(json.dumps(C3))
    assert "a question for valid has more choices than any for train" in mistake("c3", tmp_path)


def test_cail_is_split_by_its_text_and_each_triple_is_taken_once(tmp_path):
    lines = [json.dumps({"A": f"a{n}", "B": "b", "C": "c", "label": "C"}) for n in range(20)]
    (tmp_path / "one.json").write_text("\n".join(lines))
    found = extracted("cail", tmp_path)
    sizes = [len(found[f"label/{split}"]) for split in ("train", "valid", "valid1")]
    assert sizes == [12, 4, 4] and found["label/train"] == ["1"] * 12
    assert found["input1/train"] == ["b"] * 12 and found["input2/valid"] == ["c"] * 4
    (tmp_path / "one.json").rename(tmp_path / "two.json")
    (tmp_path / "three.json").write_text("\n".join(lines[::-1]))
    assert extracted("cail", tmp_path) == found
