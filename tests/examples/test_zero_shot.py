"""Zero-shot scores of language models against log-likelihoods from one forward pass."""

import json

import pytest
import torch
from support.recipes import recipe_module

pytest_plugins = ["support.packed_models"]
pytestmark = pytest.mark.formulas

zero_shot = recipe_module("language_model", "zero_shot")
PAIRS = [("the cat", " sleeps ."), ("the", " cat"), ("", "cat ."), ("g barks", " the the cat")]


@pytest.fixture
def model(loaded):
    """A random language model with a context of 24 tokens."""
    return loaded("language_modeling")


@torch.no_grad()
def by_hand(model, context, continuation):
    """Log-probabilities of *continuation* (float64), and whether greedy search gives it."""
    dictionary = model.task.source_dictionary
    before, after = ([dictionary.index(w) for w in t.split()] for t in (context, continuation))
    row = [dictionary.eos(), *before, *after][:-1]
    logits = model.models[0](torch.tensor([row[-24:]]))[0][0].double()[-len(after) :]
    values = logits.log_softmax(-1)
    return values[range(len(after)), after].tolist(), values.argmax(1).tolist() == after


def test_continuations_are_scored_as_in_one_forward(model):
    for (context, after), found in zip(PAIRS, zero_shot.score_continuations(model, PAIRS)):
        expected, greedy = by_hand(model, context, after)
        assert found.greedy == greedy
        assert found.log_probabilities == pytest.approx(expected, abs=1e-5)
    whole = model.score("the cat sleeps .")["positional_scores"].tolist()
    (found,) = zero_shot.score_continuations(model, [("", "the cat sleeps .")])
    assert found.log_probabilities == pytest.approx(whole, abs=1e-6)


def test_a_long_context_loses_its_beginning(model):
    for context, whole, expected in (([1, 2], [1, 2, 3], 2), ([1, 4], [1, 2, 3], 1), ([], [1], 0)):
        assert zero_shot.first_new(torch.tensor(context), torch.tensor(whole)) == expected
    long = "cat sleeps " * 20
    (cut,) = zero_shot.score_continuations(model, [(long + "the", " cat")])
    kept = " ".join((long + "the").split()[-22:])
    (same,) = zero_shot.score_continuations(model, [(kept, " cat")])
    assert cut.log_probabilities == pytest.approx(same.log_probabilities, abs=1e-6)
    for pair in (("the", ""), ("the", " cat" * 30)):
        with pytest.raises(SystemExit, match="continuation 0 of the list has"):
            zero_shot.score_continuations(model, [pair])


#: A line of each task, and the question it becomes: context, choices, correct choice.
ENTRIES = {
    "lambada": ('{"text": "the cat sleeps"}', ("the cat", [" sleeps"], 0)),
    "hellaswag": (
        '{"activity_label": "cat", "ctx": "the", "endings": ["cat", "."], "label": "1"}',
        ("cat: the", [" cat", " ."], 1),
    ),
    "arc": (
        '{"question": {"stem": "the", "choices": [{"text": "cat", "label": "A"}, '
        '{"text": "the cat", "label": "B"}]}, "answerKey": "B"}',
        ("Question: the Answer:", [" cat", " the cat"], 1),
    ),
    "piqa": (
        '{"goal": "the", "sol1": "cat", "sol2": "barks .", "label": 0}',
        ("Question: the Answer:", [" cat", " barks ."], 0),
    ),
    "choices": (
        '{"context": "the", "choices": ["cat", "sleeps .", "."], "label": 2}',
        ("the", [" cat", " sleeps .", " ."], 2),
    ),
}


def written(folder, *entries):
    path = folder / "file.jsonl"
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return path


@pytest.mark.parametrize("task", ENTRIES)
def test_published_files_become_questions(task, tmp_path):
    line, expected = ENTRIES[task]
    (found,) = zero_shot.questions(task, str(written(tmp_path, json.loads(line))))
    assert found[1:] == expected


def test_accuracies_are_those_of_the_log_likelihoods(model, folder_of, tmp_path, capsys):
    asked = [
        {"context": "the", "choices": ["cat", "sleeps . . .", "."], "label": label}
        for label in range(3)
    ]
    path, out = written(tmp_path, *asked), tmp_path / "answers"
    folder = str(folder_of("language_modeling"))
    zero_shot.main(["choices", str(path), folder, "--output", str(out)])
    scores = [by_hand(model, "the", choice)[0] for choice in asked[0]["choices"]]
    totals = [sum(values) for values in scores]
    means = [sum(values) / len(values) for values in scores]
    plain, by_token = totals.index(max(totals)), means.index(max(means))
    given = [json.loads(line) for line in out.read_text().splitlines()]
    assert given[0]["log_probabilities"] == pytest.approx(totals, abs=1e-5)
    assert given[0]["tokens"] == [1, 4, 1]
    said = json.loads(capsys.readouterr().out)
    assert said["questions"] == 3 and {plain, by_token} <= {0, 1, 2}
    assert said["accuracy"] == said["accuracy_by_token"] == pytest.approx(100 / 3)
    answer = {"label": 1, "log_probabilities": [-3.0, -4.0], "tokens": [1, 4], "greedy": [0, 0]}
    differs = zero_shot.summary("choices", [answer])  # accuracies differ if lengths differ
    assert (differs["accuracy"], differs["accuracy_by_token"]) == (0, 100)
