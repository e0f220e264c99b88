"""Multiple choice from the published files: RACE, C3, CHID, COPA and QNLI, and their mistakes."""

import json
import os

import pytest
from support.multiple_choice import C3, QNLI, c3, chid, choices, copa, extracted, qnli, race
from support.recipes import error_of


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
    assert "left out 3 questions without a choice, and 1 sentences" in capsys.readouterr().err


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
        ("race", lambda f: race(f, answers=["A", ""]), "question 1: its answer is none of the 4"),
        ("race", lambda f: race(f, answers=["BC", "A"]), "question 0: its answer is none of the 4"),
        ("race", lambda f: race(f, answers=["A"]), "1.txt: has different numbers"),
        ("race", lambda f: race(f, article=" "), "1.txt: its article is empty"),
        ("race", lambda f: race(f, article=3), "1.txt: article is 3; expected a text"),
        ("race", lambda f: f, "has none of train, the train set of race"),
        ("c3", lambda f: c3(f, [[["x"], [{"question": "q"}], "1"]]), "question 0: has no choice"),
        ("c3", lambda f: c3(f, [["x", [], "1"]]), 'record 0: sentences is "x"; expected a list'),
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
        (
            "chid",
            lambda f: chid(f, candidates=[["x"], 3]),
            "blank 1: choices is 3; expected a list",
        ),
        ("chid", lambda f: chid(f, candidates=[]), "line 1: blank 0: has 0 choices"),
        ("chid", lambda f: chid(f, content=[3]), "line 1: content is [3]; expected a list of te"),
        ("chid", lambda f: chid(f, groundTruth=None), "line 1: blank 0: has no answer"),
        ("race", lambda f: race(f, options=None), "1.txt: options is null; expected a list"),
        ("race", lambda f: race(f, answers=0), "1.txt: answers is 0; expected a list"),
        ("race", lambda f: race(f, answers=[]), "1.txt: has different numbers of questions"),
        ("race", lambda f: race(f, options=[3, 4]), "question 0: choices is 3; expected a list"),
        ("race", lambda f: race(f, answers=None), "question 0: has no answer"),
        ("c3", lambda f: c3(f, {"a": 1}), "train.json: has to be a list of records"),
        ("copa", lambda f: copa(f, label="1"), 'line 1: answer is "1"; expected a whole'),
        ("copa", lambda f: copa(f, label=2), "line 1: its answer is none of the 2"),
        ("copa", lambda f: copa(f, question="why"), "line 1: question is 'why'; expected cause"),
        ("qnli", lambda f: qnli(f, ("q", "s", "yes")), "line 2: has no 'yes'; expected entailment"),
        ("qnli", lambda f: qnli(f, ("q", "s")), "line 2: has no 'label'; expected entailment"),
        (
            "qnli",
            lambda f: qnli(f, ("q", "s", "entailment"), ("q", " ", "not_entailment")),
            "train.tsv: line 3: the question or the sentence is empty",
        ),
        ("qnli", lambda f: qnli(f, header="a\tb"), "line 1: expected the columns question"),
        ("qnli", lambda f: qnli(f, *QNLI[-1:]), "train.tsv: no question has one sentence that"),
    ],
)
def test_damaged_files_are_one_line(tmp_path, task, write, words):
    message = error_of(choices.extract, task, str(write(tmp_path)), str(tmp_path / "out"))
    assert words in message and str(tmp_path) in message


def test_answers_beside_chid_that_are_no_object_are_one_line(tmp_path):
    chid(tmp_path, groundTruth=None)
    (tmp_path / "train_answer.json").write_text("[2, 0]")
    message = error_of(choices.extract, "chid", str(tmp_path), str(tmp_path / "out"))
    assert "train_answer.json: has to be an object with the answer for each blank" in message


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
