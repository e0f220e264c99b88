"""``from_pretrained`` of model folders: the numbers of the models, and what is refused."""

import functools
import json
import shutil
import socket

import pytest
import torch
from conversion import write_ids
from fairseq.models import MODEL_REGISTRY
from model_folders import LABELS, write_model, write_task_model

import fairseq_posenc
from fairseq_posenc import cli
from fairseq_posenc.deploy.model_folder import read_model_folder

TRUNCATE = {"shorten_method": "truncate"}
PAIRS = {"pairs": True, "segments": 2}
MODELS = {
    "masked_lm": ("masked_lm", {}),
    "language_modeling": ("language_modeling", {}),
    "texts": ("sentence_prediction", TRUNCATE),
    "pairs": ("sentence_prediction", PAIRS),
    "roberta": ("sentence_prediction", {**PAIRS, "separator_token": 2}),
    "value": ("sentence_prediction", {"num_classes": 1, "regression_target": True}),
}


@pytest.fixture(scope="session")
def folder_of(once):
    """The model folder of translation, or of a name in MODELS."""

    def make(folder, name):
        if name == "translation":
            write_model(folder / "made")
        else:
            task, settings = MODELS[name]
            write_task_model(folder / "made", task, **settings)
        made = folder / "made"
        flags = ["--data", made / "data"]
        cli.main([str(word) for word in ("pack", made / "model.pt", folder / "packed", *flags)])

    return lambda name: once(f"packed-{name}", lambda folder: make(folder, name)) / "packed"


@pytest.fixture(scope="module")
def loaded(folder_of):
    return functools.lru_cache(maxsize=None)(
        lambda name: fairseq_posenc.from_pretrained(folder_of(name))
    )


@pytest.fixture
def no_network(monkeypatch):
    def connect(self, address):
        raise AssertionError(f"a connection to {address}")

    monkeypatch.setattr(socket.socket, "connect", connect)


def numbers(dictionary, text):
    return [dictionary.index(word) for word in text.split()]


@torch.no_grad()
def log_probabilities(logits, targets):
    """Those of *targets*, given logits (T, V)."""
    return logits.double().log_softmax(-1)[range(len(targets)), targets].tolist()


SENTENCES = ["the cat sleeps .", "cat", "the do@@ g barks . the cat"]


# --- translation


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


# --- masked language models


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
    assert model.tokens("the <mask> .") == ["<s>", "the", "<mask>", ".", "</s>"]


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


# --- classifiers

EXAMPLES = [("the cat", "barks ."), ("g", "the cat sleeps . the do@@ g"), ("a cat", "cat")]
CUT = ("the cat sleeps . " * 4, "barks")


def expected_logits(model, examples, folder):
    """The logits on binarised data, as fairseq-validate computes them."""
    dictionary = model.task.source_dictionary
    for part in range(len(examples[0])):
        lines = [[*numbers(dictionary, example[part]), 2] for example in examples]
        (folder / f"input{part}").mkdir()
        write_ids(folder / f"input{part}" / "valid", lines)
    model.task.cfg.data, model.task.cfg.no_shuffle = str(folder), True
    model.task.load_dataset("valid")
    data = model.task.dataset("valid")
    inputs = data.collater([data[number] for number in range(len(examples))])["net_input"]
    name = model.task.cfg.classification_head_name
    with torch.no_grad():
        return model.model(**inputs, features_only=True, classification_head_name=name)[0]


@pytest.mark.parametrize("name", ["texts", "pairs", "roberta", "value"])
def test_predictions_are_those_of_fairseqs_validation(name, loaded, tmp_path, capsys):
    model = loaded(name)
    examples = [*EXAMPLES, CUT] if name == "texts" else EXAMPLES
    examples = examples if name in ("pairs", "roberta") else [(first,) for first, _ in examples]
    logits = expected_logits(model, examples, tmp_path).double()
    plain = [example[0] if len(example) == 1 else example for example in examples]
    found = model.predict(plain, max_tokens=20)
    if name == "value":
        assert [p.label for p in found] == [None] * 3
        assert [p.score for p in found] == pytest.approx(logits[:, 0].tolist(), abs=1e-5)
        return
    for prediction, probabilities in zip(found, logits.softmax(-1).tolist()):
        assert list(prediction.scores) == LABELS
        assert list(prediction.scores.values()) == pytest.approx(probabilities, abs=1e-5)
        assert prediction.label == LABELS[probabilities.index(max(probabilities))]
        assert prediction.score == max(prediction.scores.values())
    cut = "text 3 of the list: it has 18 tokens, and the model accepts 16; the rest is cut off"
    assert (cut in capsys.readouterr().err) == (name == "texts")


def test_examples_without_a_prediction_keep_their_place(loaded):
    said = []
    found = loaded("pairs").predict(
        [("cat", "dog"), ("", " "), CUT, ("cat", "")], lambda *reason: said.append(reason)
    )
    assert [prediction is None for prediction in found] == [False, True, True, False]
    assert [number for number, _ in said] == [1, 2]
    assert "empty" in said[0][1] and "has 20 tokens, and the model accepts 16" in said[1][1]


def test_the_folder_describes_the_head(folder_of):
    head = read_model_folder(str(folder_of("pairs"))).head
    assert head[:4] == ("sentence_classification_head", LABELS, False, 2)
    head = read_model_folder(str(folder_of("value"))).head
    assert head[:4] == ("sentence_classification_head", ["value"], True, 1)
    assert read_model_folder(str(folder_of("masked_lm"))).head is None
    card = (folder_of("pairs") / "README.md").read_text()
    assert "no, yes, maybe" in card and "predict --model packed --columns 1,2" in card


# --- language models


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


# --- the command


def test_the_command_writes_what_python_predicts(folder_of, loaded, tmp_path, capsys):
    model = loaded("pairs")
    rows = [("the  cat", "barks ."), ("", ""), ("cat", "dog")]
    table = "\ufeffid\ttext\tother\r\n" + "".join(f"1\t{a}\t{b}\n" for a, b in rows[:2])
    (tmp_path / "in.tsv").write_text(table + "\n1\tcat\tdog", encoding="utf-8")
    flags = ["--input", tmp_path / "in.tsv", "--output", tmp_path / "out.tsv", "--buffer", "2"]
    flags += ["--header", "--columns", "text,3", "--scores"]
    cli.main([str(word) for word in ("predict", "--model", folder_of("pairs"), *flags)])
    header, *lines = [line.split("\t") for line in (tmp_path / "out.tsv").read_text().split("\n")]
    assert header == ["label", "probability", *LABELS]
    assert lines[1] == lines[2] == lines[4] == [""]
    for line, prediction in zip([lines[0], lines[3]], model.predict([rows[0], rows[2]])):
        assert line[0] == prediction.label
        expected = [prediction.score, *prediction.scores.values()]
        assert list(map(float, line[1:])) == pytest.approx(expected, abs=1e-6)
    said = capsys.readouterr().err.splitlines()
    assert [line.partition(":")[0] for line in said] == ["line 3", "line 4"]


def test_an_ensemble_averages_the_logits(folder_of, loaded, tmp_path, capsys):
    rows = [("the cat", "barks ."), ("cat", "dog sleeps")]
    (tmp_path / "in").write_text("".join("\t".join(row) + "\n" for row in rows))
    flags = ["--input", tmp_path / "in", "--output", tmp_path / "out", "--scores"]
    models = ["--model", folder_of("pairs"), "--ensemble", folder_of("roberta")]
    cli.main([str(word) for word in ("predict", *models, *flags)])
    both = [loaded(name).class_logits(rows) for name in ("pairs", "roberta")]
    assert not torch.equal(both[0][0], both[1][0])
    lines = (tmp_path / "out").read_text().splitlines()[1:]
    for line, one, two in zip(lines, *both):
        expected = ((one.double() + two.double()) / 2).softmax(-1).tolist()
        label, _, *found = line.split("\t")
        assert list(map(float, found)) == pytest.approx(expected, abs=2e-6)
        assert label == LABELS[expected.index(max(expected))]
    other = ["--model", folder_of("pairs"), "--ensemble", folder_of("texts")]
    with pytest.raises(SystemExit, match="--ensemble .*packed: is a classifier for another task"):
        cli.main([str(word) for word in ("predict", *other, *flags)])


def test_values_of_a_regression_are_a_column(folder_of, loaded, tmp_path):
    (tmp_path / "in").write_text("the cat\ncat\n")
    flags = ["--input", tmp_path / "in", "--output", tmp_path / "out"]
    cli.main([str(word) for word in ("predict", "--model", folder_of("value"), *flags)])
    values = [prediction.score for prediction in loaded("value").predict(["the cat", "cat"])]
    assert list(map(float, (tmp_path / "out").read_text().split())) == pytest.approx(
        values, abs=1e-6
    )
    head = read_model_folder(str(folder_of("value"))).head
    scaled = head._replace(bounds=(-1.0, 5.0))
    assert [scaled.value(value) for value in values] == [6 * value - 1 for value in values]


WRONG_TABLES = {
    "another family": ("language_modeling", b"", [], "holds a language model; predict needs a cl"),
    "no classifier": ("masked_lm", b"", [], "without a classification head"),
    "not UTF-8": ("texts", b"cat\n\xff\n", [], "line 2 of the input: byte 1 of it is not UTF-8"),
    "a short line": ("pairs", b"a\tb\nc\n", [], "line 2 of the table: has no column 2"),
    "no such name": ("texts", b"a\tb\n", ["--header", "--columns", "c"], "no column 'c', but a, b"),
    "a name without header": ("texts", b"a\n", ["--columns", "a"], "for names, give --header"),
    "column 0": ("texts", b"a\n", ["--columns", "0"], "'0' is no number from 1 on"),
    "one text for a pair": (
        "pairs",
        b"a\n",
        ["--columns", "1"],
        "was trained on 2 texts",
    ),
    "an absent table": ("texts", None, [], "in.tsv: cannot be read (No such file"),
    "no tokens": ("texts", b"a\n", ["--max-tokens", "0"], "--max-tokens 0: must be at least 1"),
}


@pytest.mark.parametrize("case", WRONG_TABLES)
def test_wrong_tables_are_one_line_and_write_nothing(case, folder_of, tmp_path):
    name, table, flags, message = WRONG_TABLES[case]
    if table is not None:
        (tmp_path / "in.tsv").write_bytes(table)
    flags = ["--input", tmp_path / "in.tsv", "--output", tmp_path / "out", *flags]
    with pytest.raises(SystemExit) as error:
        cli.main([str(word) for word in ("predict", "--model", folder_of(name), *flags)])
    assert message in str(error.value) and "\n" not in str(error.value)
    assert not (tmp_path / "out").exists()


# --- what is refused from Python

WRONG_CALLS = {
    "a text for a list": ("language_modeling", lambda m: m.score("cat"), "takes a list of texts"),
    "no text": ("texts", lambda m: m.predict(["cat", None]), "element 1 of the list is None"),
    "lists of two lengths": ("translation", lambda m: m.score(["cat"], []), "1 sources and 0 targ"),
    "no beam": ("translation", lambda m: m.translate(["cat"], beam=0), "beam 0: must be at least"),
    "a long text": ("language_modeling", lambda m: m.sample("cat " * 40), "has 41 tokens, and the"),
    "a long target": ("translation", lambda m: m.score(["cat"], ["cat " * 2000]), "2001 tokens"),
    "no mask": ("masked_lm", lambda m: m.fill_mask("cat"), "has 0 times <mask>"),
    "two masks": ("masked_lm", lambda m: m.fill_mask("<mask> <mask>"), "has 2 times <mask>"),
    "no head": ("masked_lm", lambda m: m.predict(["cat"]), "predict needs a classifier"),
    "no pair": ("pairs", lambda m: m.predict(["cat"]), "example 0 of the list has 1 texts, and"),
    "a tuned head": ("texts", lambda m: m.fill_mask("<mask>"), "fine-tuned as a classifier"),
    "temperature 0": ("language_modeling", lambda m: m.sample(temperature=0), "must be above 0"),
    "two limits": ("language_modeling", lambda m: m.sample(top_k=1, top_p=0.5), "one of the two"),
    "top_p 2": ("language_modeling", lambda m: m.sample(top_p=2), "top_p 2: must be above 0 and"),
}


@pytest.mark.parametrize("case", WRONG_CALLS)
def test_wrong_calls_are_one_line(case, loaded):
    name, call, message = WRONG_CALLS[case]
    with pytest.raises(ValueError) as error:
        call(loaded(name))
    assert message in str(error.value) and "\n" not in str(error.value)


def test_wrong_folders_are_one_line(folder_of, tmp_path):
    def refused(path, message):
        with pytest.raises(ValueError) as error:
            fairseq_posenc.from_pretrained(path)
        assert message in str(error.value) and "\n" not in str(error.value)

    refused(tmp_path, "model.json cannot be read")
    copy = shutil.copytree(folder_of("masked_lm"), tmp_path / "copy")
    settings = json.loads((copy / "model.json").read_text())
    settings["text"].update(subwords="subword-nmt", subword_file="codes")
    (copy / "model.json").write_text(json.dumps(settings))
    refused(copy, "codes, the subwords, is missing")
    settings.update(task="sentence_ranking", text={})
    (copy / "model.json").write_text(json.dumps(settings))
    refused(copy, "holds a model of --task sentence_ranking")


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
