"""Models from ``from_pretrained`` answer questions with spans of passages, or choose answers."""

import json

import pytest
import torch
from fairseq.data import Dictionary
from support.model_folders import ENCODER, FILES, TASKS
from support.packed_models import MODELS, numbers

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.packs.comprehension.answering import answer_questions
from fairseq_posenc.packs.comprehension.data import SETTINGS, Settings, write_settings, write_split
from fairseq_posenc.packs.comprehension.questions import Question, Reading
from fairseq_posenc.serving.preparation import Preparation, Text

pytest_plugins = ["support.packed_models"]
pytestmark = pytest.mark.formulas

TASKS["span_prediction"] = (
    *("posenc_masked_lm", *ENCODER, "--criterion", "span_prediction"),
    *("--max-positions", "16", "--stride", "4", "--no-shuffle", "--answerability", "span"),
)
FILES["span_prediction"] = {SETTINGS: json.dumps(Settings("squad", True)._asdict())}
MODELS.update(
    spans=("span_prediction", {}),
    choices=("sentence_ranking", {}),
    separated=("sentence_ranking", {"separator_token": 2, "max_option_length": 3}),
)

LONG = "the cat sleeps . " * 6
QUESTIONS = [("cat", "the cat sleeps ."), ("g barks", LONG), ("the dog", "a dog barks")]


@pytest.mark.parametrize("threshold", [-100.0, 0.0, 100.0])
def test_answers_are_those_of_prepared_data(loaded, folder_of, tmp_path, threshold):
    model, folder = loaded("spans"), folder_of("spans")
    dictionary = Dictionary.load(str(folder / "dict.txt"))
    dictionary.add_symbol("<mask>")
    passages = [passage for _, passage in QUESTIONS]
    questions = [Question(str(n), text, n) for n, (text, _) in enumerate(QUESTIONS)]
    reading = Reading(passages, questions, [])
    write_split(str(tmp_path), "test", reading, Preparation(Text()), dictionary)
    write_settings(str(tmp_path), Settings("squad", True))
    dictionary.save(str(tmp_path / "dict.txt"))
    overrides = {"data": str(tmp_path), "no_answer_threshold": threshold}
    expected = answer_questions(str(folder / "checkpoint.pt"), overrides, "test", 2)
    model.task.cfg.no_answer_threshold = threshold
    replies = model.answer(QUESTIONS)
    assert [reply.text for reply in replies] == list(expected["predictions"].values())
    assert any(reply.text for reply in replies) == (threshold > -100)
    for number, reply in enumerate(replies):
        assert reply.no_answer == pytest.approx(expected["na_prob"][str(number)], abs=1e-5)
        texts = [answer["text"] for answer in expected["nbest"][str(number)]]
        assert [answer.text for answer in reply.best] == texts
        for answer in reply.best:
            assert passages[number][answer.start :].startswith(answer.text)
    assert model.answer([]) == []
    alone = model.answer(QUESTIONS[:1])[0].best  # without other questions
    for answer, other in zip(alone, replies[0].best):
        assert (answer.text, answer.start) == (other.text, other.start)
        assert answer.score == pytest.approx(other.score, abs=1e-6)


@pytest.mark.parametrize("name", ["choices", "separated"])
@torch.no_grad()
def test_choices_are_read_before_their_context(loaded, name):
    model = loaded(name)
    choices = ["the cat", "barks", "the cat sleeps barks", "cat cat"]
    between, longest = ([], 9) if name == "choices" else ([2], 3)
    context = numbers(model.task.source_dictionary, "the do@@ g")
    scores = []
    for choice in choices:
        before = [0, *numbers(model.task.source_dictionary, choice), 2][:longest]
        tokens = torch.tensor([[*before, *between, *context, 2]])
        head = {"features_only": True, "classification_head_name": "sentence_classification_head"}
        scores.append(model.model(tokens, **head)[0].item())
    found = model.choose("the do@@ g", choices)
    expected = torch.tensor(scores).softmax(0).tolist()
    assert found.probabilities == pytest.approx(expected, abs=1e-6)
    assert found.number == expected.index(max(expected))


MISTAKES = [
    ("spans", "answer", ["the cat"], "takes a list of texts"),
    ("spans", "answer", [["the"]], "element 0 .* is 'the', not 2 texts"),
    ("spans", "answer", [[("cat", " ")]], "answer: passage 0 .* has no token"),
    ("spans", "answer", [[("", "cat")]], "answer: question 0 has no token"),
    ("spans", "answer", [[("cat " * 20, "cat")]], "leaves no room"),
    ("spans", "fill_mask", ["<mask>"], "was fine-tuned"),
    ("choices", "choose", ["cat", []], "the list of choices is empty"),
    ("choices", "choose", ["cat", ["a", ""]], "choice 1 of the list is empty"),
    ("choices", "choose", ["cat", ["a " * 20]], "text 0 of the list has 24 tokens"),
]


@pytest.mark.parametrize("name, function, arguments, message", MISTAKES)
def test_mistakes_are_one_line(loaded, name, function, arguments, message):
    with pytest.raises(UsageError, match=message) as error:
        getattr(loaded(name), function)(*arguments)
    assert "\n" not in str(error.value)
