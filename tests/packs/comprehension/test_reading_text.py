"""Reading comprehension: alignment of tokens and text, windows, published files, and scores."""

import json
import math
import random

import pytest

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.packs.comprehension.alignment import covering, token_offsets
from fairseq_posenc.packs.comprehension.data import Passage
from fairseq_posenc.packs.comprehension.questions import read_questions
from fairseq_posenc.packs.comprehension.scores import RULES, best_threshold, scored, scores
from fairseq_posenc.packs.comprehension.span_windows import windows
from fairseq_posenc.packs.comprehension.spans import Candidate, answered

pytestmark = pytest.mark.formulas
TEXT = "Über «Zürich»: 3,5 % mehr — sagt Dr. O'Neil… und 東京タワーは333m! \u00a0Ende\n"


def by_moses(text):
    sacremoses = pytest.importorskip("sacremoses", reason="the recipes need sacremoses")
    words = sacremoses.MosesTokenizer(lang="de").tokenize(
        sacremoses.MosesPunctNormalizer(lang="de").normalize(text.lower())
    )
    return [word[at : at + 3] for word in words for at in range(0, len(word), 3)]


def by_bytes(text):
    """Single bytes as decoded tokens: ASCII characters, and U+FFFD for all other bytes."""
    return [chr(byte) if byte < 128 else "\ufffd" for byte in text.encode()]


@pytest.mark.parametrize("split", [by_moses, by_bytes, str.split])
def test_every_token_stands_for_its_characters(split):
    tokens = split(TEXT)
    offsets = token_offsets(TEXT, tokens)
    assert len(offsets) == len(tokens)
    assert [start for start, _ in offsets] == sorted(start for start, _ in offsets)
    assert [end for _, end in offsets] == sorted(end for _, end in offsets)
    seen = {at for start, end in offsets for at in range(start, end)}
    assert {at for at, c in enumerate(TEXT) if not c.isspace()} <= seen
    first, last = covering(offsets, TEXT.index("sagt"), TEXT.index(" und"))
    assert TEXT[offsets[first][0] : offsets[last][1]].strip() == "sagt Dr. O'Neil…"


def test_unknown_and_escaped_tokens():
    def shown(text, tokens):
        return [text[start:end] for start, end in token_offsets(text, tokens)]

    assert shown("a 你好 b", ["a", "[UNK]", "b"]) == ["a", "你好", "b"]
    assert shown("R&D's", ["r", "&am", "p;", "d", "&apos;", "s"]) == ["R", "&", "&", "D", "'", "s"]
    assert shown("ﬁn ½", ["fi", "n", "1/2"]) == ["ﬁ", "n", "½"]
    assert shown("x", []) == []
    assert shown("ab", ["q"]) == ["ab"]
    assert covering([(0, 1), (3, 4)], 1, 3) is None


def test_windows_cover_a_passage_and_own_every_token_once():
    draw = random.Random(2)
    for _ in range(200):
        length, room = draw.randint(1, 60), draw.randint(1, 20)
        found = windows(length, room, draw.randint(1, room))
        owners = [n for n, w in enumerate(found) for _ in range(w.own_start, w.own_end)]
        assert len(owners) == length and found[-1].end == length
        for token, owner in enumerate(owners):

            def context(window, at=token):
                return min(at - window.start, window.end - 1 - at)

            seeing = [w for w in found if w.start <= token < w.end]
            assert found[owner] in seeing
            assert context(found[owner]) == max(map(context, seeing))
        assert all(w.end - w.start <= room for w in found)


def test_the_best_answer_over_windows():
    passage = Passage("aa bb aa", [(0, 2), (3, 5), (6, 8)])
    candidates = [
        Candidate(0, 0, 3.0, 9.0),
        Candidate(1, 1, 5.0, 9.0),
        Candidate(2, 2, 4.0, 1.0),  # the same text as the first candidate, with a higher score
        Candidate(1, 2, -1.0, 1.0),
    ]
    found = answered(candidates, passage, 2)
    assert [(a.text, a.score, a.start) for a in found.best] == [("bb", 5.0, 3), ("aa", 4.0, 6)]
    assert found.null_difference == 1.0 - 5.0  # the lowest null score, minus the best span score
    assert found.text(0.0) == "bb" and found.text(-4.5) == ""
    assert found.no_answer_probability == pytest.approx(1 / (1 + math.exp(4)))
    assert answered(candidates, passage, 2, classified=True).null_difference == 1.0


# --- scores, by the rules of the published scripts


@pytest.mark.parametrize(
    "rules, prediction, answers, exact, f1",
    [
        ("squad", "The  Broncos!", ["Denver Broncos", "broncos"], 1, 1),
        ("squad", "an old, old cat", ["the cat"], 0, 2 * (1 / 3) / (1 + 1 / 3)),
        ("squad", "U.S.", ["US"], 1, 1),
        ("squad", "a-b", ["ab"], 1, 1),
        ("squad", "cat cat", ["cat"], 0, 2 * 0.5 / 1.5),
        ("squad", "", ["cat"], 0, 0),
        ("squad", "", [], 1, 1),
        ("squad", "cat", [], 0, 0),
        ("squad", "", ["the", "cat"], 0, 0),  # answers that are only an article do not count
        ("cmrc", "《红楼梦》", ["红楼梦"], 1, 1),
        ("cmrc", "北京大学", ["北京的大学"], 0, 2 * (2 / 4) * (2 / 5) / (2 / 4 + 2 / 5)),
        ("cmrc", "1998年 May", ["1998年may"], 0, 1),
        ("cmrc", "上海", ["北京", "上海市"], 0, 2 * 1 * (2 / 3) / (1 + 2 / 3)),
    ],
)
def test_scores_of_single_answers(rules, prediction, answers, exact, f1):
    found = scored(prediction, answers, RULES[rules])
    assert (found.exact, found.f1) == (exact, pytest.approx(f1))
    assert found.answerable == bool(answers)


def test_scores_of_a_file_and_the_best_threshold():
    answers = {"a": ["x"], "b": ["y z"], "c": [], "d": []}
    predictions = {"a": "x", "b": "y", "c": "wrong", "d": ""}
    odds = {"a": 0.1, "b": 0.3, "c": 0.2, "d": 0.9}
    found = scores(predictions, answers, RULES["squad"])
    assert found["exact"] == 50 and found["total"] == 4
    assert found["HasAns_f1"] == pytest.approx(100 * (1 + 2 / 3) / 2)
    assert found["NoAns_exact"] == 50
    found = scores(predictions, answers, RULES["squad"], odds, 0.15)
    assert found["exact"] == 75 and found["best_exact"] == 75
    assert found["best_exact_thresh"] == 0.1
    # the score with each threshold
    each = [scored(predictions[key], right, RULES["squad"]) for key, right in answers.items()]
    for name in ("exact", "f1"):
        tried = [
            sum(
                getattr(e.without_answer() if odd > limit else e, name)
                for e, odd in zip(each, odds.values())
            )
            for limit in (0.0, *odds.values())
        ]
        best = best_threshold(each, list(odds.values()), name)
        assert best.score == pytest.approx(25 * max(tried))
    assert scores({}, answers, RULES["squad"])["exact"] == 0  # missing predictions are wrong


@pytest.mark.parametrize("prediction", ["", "the", "the.", "wrong"])
def test_thresholds_count_any_text_as_an_answer(prediction):
    """SQuAD 2.0's search subtracts a point for a non-empty text if a question has no answer."""
    each = [scored(prediction, [], RULES["squad"]), scored("x", ["x"], RULES["squad"])]
    best = best_threshold(each, [0.1, 0.2], "exact")
    assert best == ((100.0, 0.2) if not prediction else (50.0, 0.0))


def squad(folder, *questions, context="The cat sat here."):
    path = folder / "train.json"
    content = {"data": [{"paragraphs": [{"context": context, "qas": list(questions)}]}]}
    path.write_text(json.dumps(content), encoding="utf-8")
    return str(path)


def asked(key, text="cat", start=4, **more):
    answers = [{"text": text, "answer_start": start}]
    return {"id": key, "question": "Who?", "answers": answers, **more}


def test_a_published_file(tmp_path):
    none = {"id": "n", "question": "Why?", "is_impossible": True, "answers": []}
    reading = read_questions(squad(tmp_path, asked("q", " cat", 3), none))
    assert reading.questions[0][:] == ("q", "Who?", 0, (" cat",), 4)
    assert reading.questions[1].answers == () and reading.questions[1].start == -1
    path = squad(tmp_path, asked("q"), asked("r", start=5))
    assert read_questions(path, answered=False).answers == {"q": (), "r": ()}
    without = read_questions(path, misplaced="leave out")
    assert without.misplaced == ["r"] and without.answers == {"q": ("cat",)}
    kept = read_questions(path, misplaced="keep")
    assert kept.misplaced == ["r"] and kept.answers == {"q": ("cat",), "r": ("cat",)}
    assert [question.start for question in kept.questions] == [4, -1]
    assert list(read_questions(squad(tmp_path, asked(7))).answers) == ["7"]


@pytest.mark.parametrize(
    "questions, words",
    [
        ([asked("q", start=5)], "question q: the answer 'cat' is not at character 5"),
        ([asked("q", start=-1)], "question q: the answer 'cat' is not at character -1"),
        ([asked("q", start="x")], 'question q: answer_start is "x"; expected a whole number'),
        ([asked("q", text=" ")], "question q: answer: its text is empty"),
        ([asked("q", answers=7)], "question q: answers is 7; expected a list"),
        ([asked("q", is_impossible="false")], 'is_impossible is "false"; expected true or false'),
        ([asked("q\ud83d")], "is not JSON (unpaired surrogate '\\ud83d' after "),
        ([asked(None)], "a question on passage 0 (counted from 0): id is null; expected a text"),
        ([{"id": "q", "question": "Who?"}], "question q: has no answers; give one, or"),
        ([asked("q"), asked("q")], "the id q occurs twice"),
        ([{**asked("q"), "question": " "}], "question q: its question is empty"),
        ([], "has no question"),
        ([3], "has no id"),
    ],
)
def test_a_damaged_file_is_one_line(tmp_path, questions, words):
    path = squad(tmp_path, *questions)
    with pytest.raises(UsageError) as caught:
        read_questions(path)
    assert words in str(caught.value) and path in str(caught.value)
    with pytest.raises(UsageError, match="passage 0: its context is empty"):
        read_questions(squad(tmp_path, asked("q"), context=" "))
