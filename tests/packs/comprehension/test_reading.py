"""Reading comprehension: span loss, best spans, windows, choices, and the commands."""

import json
import math
import random
from argparse import Namespace
from unittest.mock import Mock

import pytest
import torch
from fairseq.criterions.sentence_ranking import SentenceRankingCriterion
from fairseq.tasks.sentence_ranking import SentenceRankingTask
from support.commands import posenc, shape, train
from support.helpers import VOCABULARY
from support.model_folders import dictionary

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.packs.comprehension.data import Passage, Record, Split, write_split
from fairseq_posenc.packs.comprehension.questions import Question, Reading
from fairseq_posenc.packs.comprehension.span_windows import SpanWindows
from fairseq_posenc.packs.comprehension.spans import best_spans, span_loss
from fairseq_posenc.serving.preparation import Preparation, Text

pytestmark = pytest.mark.formulas
PASSAGE = torch.tensor([[3, 9], [4, 6]])
SHAPE = [
    *("--arch", "posenc_masked_lm", "--position-encoding", "rotary", "--num-segments", "2"),
    *(*shape(1, 16, 16, 2, "encoder"), "--max-positions", "24", "--lr", "0.02"),
]


def nll(scores, allowed, place):
    """The negative log-probability of position *place* among the *allowed* ones, in float64."""
    return math.log(sum(math.exp(scores[p]) for p in allowed)) - scores[place]


@pytest.mark.parametrize("classified", [False, True])
def test_the_loss_is_that_of_the_papers(classified):
    logits = torch.randn(2, 9, 3)
    target = torch.tensor([[4, 7], [0, 0]])
    found = span_loss(logits, PASSAGE, target, classified)
    for row, (first, end) in enumerate(PASSAGE.tolist()):
        allowed = [*([] if classified else [0]), *range(first, end)]
        start, last, verdict = logits[row].double().T.tolist()
        wanted = 0.0
        if row == 0 or not classified:
            at = target[row].tolist()
            wanted = (nll(start, allowed, at[0]) + nll(last, allowed, at[1])) / 2
        if classified:
            sign = 1 if row == 0 else -1  # the second window has no answer
            wanted += math.log1p(math.exp(sign * verdict[0]))
        assert float(found[row]) == pytest.approx(wanted, abs=1e-5)


@pytest.mark.parametrize("classified", [False, True])
def test_the_best_spans_are_those_of_a_search(classified):
    logits, own = torch.randn(2, 9, 3), torch.tensor([[3, 7], [5, 5]])
    first, last, scores, null = best_spans(logits, PASSAGE, own, 3, 6, classified)
    wanted = sorted(
        (float(logits[0, s, 0] + logits[0, e, 1]), s, e)
        for s in range(3, 7)
        for e in range(s, min(s + 3, 9))
    )[::-1][:6]
    rows = zip(first[0].tolist(), last[0].tolist(), scores[0].tolist())
    for (score, start, end), row in zip(wanted, rows):
        assert row == (start, end, pytest.approx(score))
    assert torch.isinf(scores[1]).all()  # all its tokens belong to another window
    expected = logits[:, 0, 2] if classified else logits[:, 0, 0] + logits[:, 0, 1]
    assert torch.allclose(null, expected)


def windows_of(longest, stride=3, most=None, separator=None, start=5, end=6):
    numbers = torch.arange(10, 21, dtype=torch.int32)
    split = Split(
        [Record("q", 0, ["x"], start, end)],
        [Passage("x" * 11, [(n, n + 1) for n in range(11)])],
        [torch.tensor([5, 6])],
        [numbers],
    )
    cfg = {"max_positions": longest, "stride": stride, "longest_question": most}
    cfg = Namespace(**cfg, init_token=0, separator_token=separator, no_shuffle=True)
    return SpanWindows(split, VOCABULARY, cfg, 7, "data")


@pytest.mark.parametrize("separator", [None, 2])
def test_a_window_is_a_pair_and_knows_its_places(separator):
    found = windows_of(10 + (separator is not None), separator=separator)
    seen = []
    for sample in (found[n] for n in range(len(found))):
        tokens, (first, end) = sample["tokens"].tolist(), sample["passage"]
        assert tokens[:4] == [0, 5, 6, 2] and tokens[-1] == 2 and len(tokens) <= 11
        assert tokens[4:first] == ([] if separator is None else [2])
        assert tokens[first:end] == list(range(10, 21))[first - sample["shift"] :][: end - first]
        start, last = sample["target"]
        if start:
            assert tokens[start : last + 1] == [15, 16]
        seen += range(*(place - sample["shift"] for place in sample["own"]))
    assert seen == list(range(11))
    assert any(found[n]["target"] == [0, 0] for n in range(len(found)))
    assert found.collater([found[0]])["question"].tolist() == [7]


def test_a_question_longer_than_the_window():
    with pytest.raises(UsageError, match="data: question q has 2 tokens, .* --max-positions 5"):
        windows_of(5)
    assert windows_of(5, most=1).cut == 1
    assert [windows_of(6)[n]["target"] for n in range(3)] == [[0, 0]] * 3  # too long an answer


def test_choices_that_a_question_does_not_have_take_no_part():
    eos, scores = VOCABULARY.eos(), torch.tensor([[0.3, -0.5, 0.9], [0.1, 0.7, 5.0]])

    model = Mock(classification_heads={"head": None})
    model.side_effect = [(column[:, None], None) for column in scores.t()]
    batch = {"target": torch.tensor([2, 1]), "ntokens": 4}
    model.get_targets.return_value = batch["target"]
    for number in (1, 2, 3):
        tokens = torch.tensor([[0, 5, eos, 6], [0, 5, eos, 6]])
        tokens[1, 1] = eos if number == 3 else 5  # the second question has two choices
        batch[f"net_input{number}"] = {"src_tokens": tokens}
    criterion = SentenceRankingCriterion.__new__(SentenceRankingCriterion)
    torch.nn.Module.__init__(criterion)
    criterion.ranking_head_name, criterion.num_classes, criterion.prediction_h = "head", 3, None
    criterion.task = Namespace(args=Namespace(init_token=0), source_dictionary=VOCABULARY)
    loss, _, output = criterion(model, batch)
    wanted = nll(scores[0].tolist(), range(3), 2) + nll(scores[1].tolist(), range(2), 1)
    assert float(loss) == pytest.approx(wanted, abs=1e-5)
    assert int(output["ncorrect"]) == 2


@pytest.mark.parametrize(
    "choices, labels, message",
    [
        (3, "0\n2\n", "--num-classes 3: the questions in .* have 2 choices; give --num-classes 2"),
        (2, "0\n2\n", "line 2: '2' is none of the 2 choices; expected a number from 0"),
    ],
)
def test_other_choices_than_the_questions_have_are_refused(tmp_path, choices, labels, message):
    for name in ("input0", "input1", "input2", "label"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "valid.idx").touch()
    (tmp_path / "label" / "valid.label").write_text(labels)
    task = Namespace(args=Namespace(data=str(tmp_path), num_classes=choices))
    with pytest.raises(UsageError, match=message):
        SentenceRankingTask.load_dataset(task, "valid")


def test_a_vocabulary_of_other_subwords_is_refused(tmp_path):
    reading = Reading(["cat cat sat there here"], [Question("q", "cat", 0)], [])
    with pytest.raises(UsageError, match="train: 60% of the tokens are not in the dictionary .sat"):
        write_split(str(tmp_path), "train", reading, Preparation(Text()), dictionary(["cat"]))
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """Made-up passages, some longer than a window, with questions, prepared by the command."""
    folder, draw = tmp_path_factory.mktemp("reading"), random.Random(3)
    dictionary("abcdefghijkl?").save(str(folder / "dict.txt"))
    for split, count in (("train", 30), ("valid", 9)):
        paragraphs = []
        for number in range(count):
            passage = draw.choices("abcdefghijkl", k=draw.randint(5, 40))
            place = draw.randrange(len(passage))
            answer = {"text": passage[place], "answer_start": 2 * place}
            none = {"id": f"n{number}", "question": "b ?", "is_impossible": True, "answers": []}
            asked = {"id": f"q{number}", "question": "a ?", "answers": [answer]}
            paragraphs.append({"context": " ".join(passage), "qas": [asked, none]})
        content = {"data": [{"paragraphs": paragraphs}]}
        (folder / f"{split}.json").write_text(json.dumps(content))
    files = [f for s in ("train", "valid") for f in (f"--{s}", folder / f"{s}.json")]
    found = posenc("reading", "prepare", folder / "data", "--dict", folder / "dict.txt", *files)
    assert found.status == 0, found.err
    assert "18 questions on 9 passages, 9 without an answer; 0 answers begin or" in found.out
    return folder


SPANS = ["--task", "span_prediction", "--criterion", "span_prediction", "--stride", "6"]


def test_spans_are_trained_answered_and_scored(prepared, tmp_path):
    usual = [*SHAPE, *SPANS, "--batch-size", "16", "--best-checkpoint-metric", "f1"]
    usual += ["--maximize-best-checkpoint-metric"]
    trained = train(prepared / "data", tmp_path, *usual, "--answerability", "classifier")
    (valid,) = trained.entries("valid")
    best = tmp_path / "checkpoint_best.pt"
    answered = posenc("reading", "answer", best, prepared / "data", "--output", tmp_path / "out")
    assert answered.status == 0, answered.err
    scores = json.loads((tmp_path / "out" / "scores.json").read_text())
    assert scores["total"] == 18 and scores["NoAns_total"] == 9
    for name in ("exact", "f1"):
        assert float(valid[f"valid_{name}"]) == pytest.approx(scores[name], abs=0.006)
        assert scores[f"best_{name}"] >= scores[name]
    files = [prepared / "valid.json", tmp_path / "out" / "predictions.json"]
    again = posenc("reading", "score", *files, "--na-prob", tmp_path / "out" / "na_prob.json")
    assert json.loads(again.out)["exact"] == pytest.approx(scores["exact"])
    predictions = json.loads(files[1].read_text())
    (tmp_path / "wrong.json").write_text(json.dumps({**predictions, "q0": 5}))
    refused = posenc("reading", "score", files[0], tmp_path / "wrong.json")
    assert refused.status and "wrong.json: q0: 5 is no valid value" in refused.err
    assert set(predictions) == {f"{kind}{n}" for kind in "qn" for n in range(9)}
    odds = json.loads((tmp_path / "out" / "na_prob.json").read_text())
    assert all((text == "") == (odds[key] > 0.5) for key, text in predictions.items())
    content = json.loads((prepared / "valid.json").read_text())
    content["data"][0]["paragraphs"][0]["qas"][0]["answers"][0]["answer_start"] = 1
    (tmp_path / "wrong.json").write_text(json.dumps(content))
    prepare = ["reading", "prepare", tmp_path / "kept", "--dict", prepared / "dict.txt"]
    refused = posenc(*prepare, "--train", tmp_path / "wrong.json")
    assert "wrong.json: question q0: " in refused.err and "with --leave-out-wrong" in refused.err
    said = posenc(*prepare, "--train", tmp_path / "wrong.json", "--leave-out-wrong").out
    assert "wrong.json: 17 questions" in said and "1 not at answer_start (left out)" in said
    # without the classifier, the span head has a different size; it alone starts untrained
    usual = [word for word in usual if word not in ("--position-encoding", "rotary")]
    result = train(prepared / "data", tmp_path / "tuned", *usual, "--finetune-from-model", best)
    assert "left out token_heads.span_head.weight, whose size differs" in result.out
    assert "position encoding rotary" in result.out + result.err
