"""``from_pretrained`` of model folders: numbers of translation and language models."""

import copy
import pickle

import pytest
import torch
from fairseq.models import MODEL_REGISTRY
from support.packed_models import SENTENCES, log_probabilities, numbers

import fairseq_posenc

pytest_plugins = ["support.packed_models"]


@torch.no_grad()
def test_scores_of_translations_are_those_of_a_forward(loaded):
    model = loaded("translation")
    targets = ["barks .", "the do@@ g sleeps unknown", ""]
    found = model.score(SENTENCES, targets)
    source, target = model.task.source_dictionary, model.task.target_dictionary
    for text, translation, scores in zip(SENTENCES, targets, found):
        tokens = torch.tensor([[*numbers(source, text), 2]])
        expected = [*numbers(target, translation), 2]
        before = torch.tensor([[2, *expected[:-1]]])
        logits = model.model(tokens, torch.tensor([tokens.size(1)]), before)[0][0]
        assert scores.log_probabilities == pytest.approx(
            log_probabilities(logits, expected), abs=1e-5
        )
        assert scores.tokens == [target[number] for number in expected]
    assert found[0].total == pytest.approx(sum(found[0].log_probabilities))
    assert found[0].perplexity == pytest.approx(pow(2.718281828, -found[0].total / 3))


def test_translations_are_those_of_fairseqs_hub(folder_of, loaded, no_network, capsys):
    hub = MODEL_REGISTRY["posenc_transformer"].from_pretrained(str(folder_of("translation"))).eval()
    model = loaded("translation")
    expected = hub.translate(SENTENCES, beam=3, lenpen=0.6, max_len_b=6)
    found = model.translate([*SENTENCES, "", "cat " * 40], beam=3, lenpen=0.6, max_length=6)
    assert found == [*expected, "", ""]
    assert all(expected) and "line 5: the line has 40 tokens" in capsys.readouterr().err


CALLS = {
    "translation": lambda model: model.score(SENTENCES, SENTENCES),
    "masked_lm": lambda model: model.fill_mask("the <mask> ."),
    "language_modeling": lambda model: model.score(SENTENCES),
    "pairs": lambda model: model.predict([("cat", "dog")]),
}


@torch.no_grad()
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
@pytest.mark.parametrize("name", CALLS)
def test_copies_have_the_weights_and_share_none(name, copied, folder_of):
    model, call = fairseq_posenc.from_pretrained(folder_of(name)), CALLS[name]
    unchanged = call(model)
    for parameter in model.model.parameters():
        parameter.mul_(1.5)  # other weights than those of the folder
    expected, twin = call(model), copied(model)
    assert call(twin) == expected != unchanged
    next(twin.model.parameters()).zero_()
    assert call(model) == expected


@torch.no_grad()
def test_filled_masks_are_the_most_probable_symbols(loaded):
    model = loaded("masked_lm")
    dictionary = model.task.source_dictionary
    mask = dictionary.index("<mask>")
    tokens = torch.tensor([[0, *numbers(dictionary, "the"), mask, *numbers(dictionary, "."), 2]])
    probabilities = model.model(tokens)[0][0, 2].double().softmax(-1).tolist()
    found = model.fill_mask("the <mask> .", top_k=len(dictionary) + 5)
    assert [f.probability for f in found] == pytest.approx(sorted(probabilities, reverse=True))
    assert len(found) == len(dictionary)
    for filled in found:
        index = dictionary.index(filled.token)
        assert filled.probability == pytest.approx(probabilities[index], abs=1e-6)
        assert filled.text == f"the {filled.token} ."
    assert model.tokens("the<mask>.") == ["<s>", "the", "<mask>", ".", "</s>"]
    assert loaded("texts").tokens("the<mask>.") == ["<s>", "<unk>", "</s>"]  # a classifier's text


@torch.no_grad()
def test_pseudo_log_likelihood_masks_one_symbol_at_a_time(loaded):
    model = loaded("masked_lm")
    dictionary = model.task.source_dictionary
    found = model.pseudo_log_likelihood([*SENTENCES, ""])
    for text, scores in zip(SENTENCES, found):
        expected, row = [], numbers(dictionary, text)
        for place, number in enumerate(row):
            masked = [0, *row, 2]
            masked[place + 1] = dictionary.index("<mask>")
            logits = model.model(torch.tensor([masked]))[0][0, place + 1]
            expected += log_probabilities(logits[None], [number])
        assert scores.log_probabilities == pytest.approx(expected, abs=1e-5)
        assert scores.tokens == text.split()
    assert found[-1] == ([], []) and found[-1].perplexity == 1


@torch.no_grad()
@pytest.mark.parametrize("name", ["masked_lm", "pairs"])
def test_features_are_the_last_states(name, loaded):
    model = loaded(name)
    dictionary = model.task.source_dictionary
    tokens = torch.tensor([[0, *numbers(dictionary, SENTENCES[0]), 2]])
    features = model.extract_features(SENTENCES[0])
    assert torch.equal(features, model.model(tokens, features_only=True)[0][0])
    assert features.shape == (len(model.tokens(SENTENCES[0])), 16)


@torch.no_grad()
def test_scores_and_next_tokens_are_those_of_a_forward(loaded):
    model = loaded("language_modeling")
    dictionary = model.task.source_dictionary
    for text, scores in zip(SENTENCES, model.score(SENTENCES)):
        row = numbers(dictionary, text)
        logits = model.model(torch.tensor([[2, *row]]))[0][0]
        assert scores.log_probabilities == pytest.approx(log_probabilities(logits, row), abs=1e-5)
        assert scores.tokens == text.split()
        best = logits[-1].softmax(-1).topk(3)
        found = model.next_tokens(text, top_k=3)
        assert [f.probability for f in found] == pytest.approx(best.values.tolist(), abs=1e-6)
        assert [dictionary.index(f.token) for f in found] == best.indices.tolist()
        features = model.extract_features(text)
        assert model.tokens(text) == ["</s>", *text.split()]
        torch.testing.assert_close(model.model.decoder.output_layer(features), logits)


def test_samples_repeat_with_their_seed_and_begin_with_the_prompt(loaded):
    model = loaded("language_modeling")
    begun = torch.get_rng_state()
    drawn = [model.sample("the cat", count=4, seed=seed, max_tokens=8) for seed in (1, 1, 2)]
    assert torch.equal(torch.get_rng_state(), begun)
    assert drawn[0] == drawn[1] != drawn[2]
    assert len(set(drawn[0])) > 1
    for text in drawn[0]:
        assert text.startswith("the cat") and len(text.split()) <= 10
    assert model.sample("the cat", max_tokens=8) != model.sample("the cat", max_tokens=8)


@torch.no_grad()
@pytest.mark.parametrize("settings", [{"top_k": 1}, {"top_p": 1e-6}, {"temperature": 1e-4}])
def test_samples_from_the_best_are_greedy(settings, loaded):
    """Whatever the prompt: the model gives this one a probability of 0 at that temperature."""
    model = loaded("language_modeling")
    row = [2, *numbers(model.task.source_dictionary, "barks the the")]
    for _ in range(6):
        logits = model.model(torch.tensor([row]))[0][0, -1]
        logits[1] = float("-inf")
        row.append(int(logits.argmax()))
        if row[-1] == 2:
            break
    words = [model.task.source_dictionary[number] for number in row if number != 2]
    assert model.sample("barks the the", max_tokens=6, **settings) == [" ".join(words)]


# --- fairseq's own from_pretrained


def test_fairseqs_from_pretrained_reads_model_folders(folder_of, loaded, no_network):
    def hub(name, arch):
        return MODEL_REGISTRY[arch].from_pretrained(str(folder_of(name))).eval()

    classifier, model = hub("pairs", "posenc_masked_lm"), loaded("pairs")
    tokens = classifier.encode("the cat", "barks .", no_separator=True)
    with torch.no_grad():
        found = classifier.predict("sentence_classification_head", tokens).exp()[0]
    expected = model.predict([("the cat", "barks .")])[0].scores.values()
    assert found.tolist() == pytest.approx(list(expected), abs=1e-6)
    masked = hub("masked_lm", "posenc_masked_lm").fill_mask("the <mask> .", topk=3)
    found = loaded("masked_lm").fill_mask("the <mask> .", top_k=3)
    assert [probability for _, probability, _ in masked] == pytest.approx(
        [filled.probability for filled in found]
    )
    language = hub("language_modeling", "posenc_lm").score(SENTENCES[0])["positional_scores"]
    found = loaded("language_modeling").score(SENTENCES[:1])[0]
    assert language.tolist() == pytest.approx(found.log_probabilities)


def test_nothing_is_downloaded_unasked(folder_of, no_network):
    made = folder_of("masked_lm").parent / "made"
    with pytest.raises(ValueError, match="is no model folder, so how its text was"):
        MODEL_REGISTRY["posenc_masked_lm"].from_pretrained(str(made), data_name_or_path="data")
