"""``from_pretrained`` with model folders: fairseq's hub interfaces, which prepare text."""

import os

import pytest
import torch
from fairseq.models import MODEL_REGISTRY
from fairseq.models.roberta import RobertaHubInterface
from support.commands import Command
from support.model_folders import pack, write_task_model
from support.packed_models import SENTENCES, log_probabilities, numbers

import fairseq_posenc
from fairseq_posenc import cli

pytest_plugins = ["support.packed_models"]
pytestmark = pytest.mark.formulas
HEAD = "sentence_classification_head"
PAIR = ("the cat", "barks .")


def symbols_of(hub, *texts, **options):
    return [hub.task.source_dictionary[n] for n in hub.encode(*texts, **options).tolist()]


def test_a_training_imports_nothing_that_prepares_text(tmp_path):
    code = (
        "import sys, fairseq_posenc\n"
        "start = 'fairseq_posenc.'\n"
        "print(*[m for m in sys.modules if m.startswith((start + 'serving', start + 'exchange'))])"
    )
    (tmp_path / "imports.py").write_text(code)
    done = Command(str(tmp_path / "imports.py"), []).finish()
    serving = "fairseq_posenc.serving"
    assert set(done.out.split()) == {serving, f"{serving}.pretrained"}, done.err


@pytest.mark.parametrize(
    "name, arch", [("translation", "posenc_transformer"), ("language_modeling", "posenc_lm")]
)
def test_the_interface_is_fairseqs(name, arch, folder_of, loaded, no_network, tmp_path):
    folder, hub = folder_of(name), loaded(name)
    stock = MODEL_REGISTRY[arch].from_pretrained(os.path.relpath(folder)).eval()  # ../…
    assert type(hub) is type(stock) and not hub.training
    if name == "translation":
        found = hub.translate(SENTENCES, beam=3, lenpen=0.6, max_len_b=6)
        assert found == stock.translate(SENTENCES, beam=3, lenpen=0.6, max_len_b=6)
        (tmp_path / "in").write_text("\n".join(SENTENCES) + "\n")
        flags = ["--beam", "3", "--lenpen", "0.6", "--max-length", "6", "--input", tmp_path / "in"]
        words = ["translate", "--model", folder, "--output", tmp_path / "out", *flags]
        cli.main([str(word) for word in words])
        assert (tmp_path / "out").read_text().splitlines() == found
        assert all(found)
        words[words.index("--input") + 1] = tmp_path / "absent"
        with pytest.raises(SystemExit, match="--input .*absent: cannot be read"):
            cli.main([str(word) for word in words])
        assert (tmp_path / "out").read_text().splitlines() == found


@torch.no_grad()
def test_scores_of_a_language_model_are_those_of_a_forward(loaded):
    hub = loaded("language_modeling")
    for text in SENTENCES:
        row = numbers(hub.task.source_dictionary, text)
        logits = hub.models[0](torch.tensor([[2, *row]]))[0][0]
        found = hub.score(text)["positional_scores"].tolist()
        assert found == pytest.approx(log_probabilities(logits, row), abs=1e-5)


def test_a_byte_that_fairseq_takes_for_white_space_is_unknown(tmp_path):
    made = write_task_model(tmp_path / "made", "language_modeling")
    flags = ["--subwords", "text8", "--trust-subwords"]
    hub = fairseq_posenc.from_pretrained(pack(made, tmp_path / "packed", *flags))
    assert len(hub.encode("a\tb c")) == len(b"a\tb c") + 1


def test_texts_are_joined_as_the_task_joins_them(loaded):
    """test_predict.py tests the texts of classifiers."""
    hub, pair = loaded("masked_lm"), "<s> the cat </s> </s> barks . </s>"
    assert symbols_of(hub, "the cat") == "<s> the cat </s>".split()
    assert symbols_of(hub, *PAIR) == pair.split()
    both = pair.replace("</s> </s>", "</s>").split()
    assert symbols_of(hub, *PAIR, no_separator=True) == both


@torch.no_grad()
def test_filled_masks_are_the_most_probable_symbols(loaded):
    hub = loaded("masked_lm")
    dictionary = hub.task.source_dictionary
    mask = dictionary.index("<mask>")
    tokens = torch.tensor([[0, *numbers(dictionary, "the"), mask, *numbers(dictionary, "."), 2]])
    probabilities = hub.model(tokens)[0][0, 2].double().softmax(-1).tolist()
    found = hub.fill_mask("the <mask> .", topk=len(dictionary) + 5)
    assert [p for _, p, _ in found] == pytest.approx(sorted(probabilities, reverse=True))
    for text, probability, word in found:
        assert text == f"the {word} ."
        if word in dictionary.indices:
            assert probability == pytest.approx(probabilities[dictionary.index(word)], abs=1e-6)
    assert isinstance(hub, RobertaHubInterface)
    stock = MODEL_REGISTRY["posenc_masked_lm"].from_pretrained(str(hub.folder.path)).eval()
    assert stock.fill_mask("the <mask> .", topk=3) == found[:3]


@pytest.mark.parametrize(
    "name, call, message",
    [
        ("masked_lm", lambda hub: hub.fill_mask("cat"), "has 0 masks (<mask>)"),
        ("masked_lm", lambda hub: hub.fill_mask("<mask> <mask>"), "has 2 masks (<mask>)"),
        ("masked_lm", lambda hub: hub.fill_mask("<mask>", topk=0), "topk is 0; give"),
        ("masked_lm", lambda hub: hub.fill_mask("<mask> " + "a " * 40), "has 43 tokens"),
        ("texts", lambda hub: hub.fill_mask("<mask>"), "fine-tuned as a classifier"),
        ("pairs", lambda hub: hub.predict(HEAD, hub.encode("cat " * 9, "cat " * 9)), "21 tokens"),
    ],
)
def test_wrong_calls_are_one_line(name, call, message, loaded):
    with pytest.raises(ValueError) as error:
        call(loaded(name))
    assert message in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("device", ["foo", "cpu:x", "meta", "cuda:99", None])
def test_a_device_that_cannot_be_used_is_one_line(device, folder_of):
    with pytest.raises(ValueError, match=f"device {device}: cannot be used here .*cpu works$"):
        fairseq_posenc.from_pretrained(folder_of("masked_lm"), device=device)


def test_nothing_is_downloaded_unasked(folder_of, no_network):
    made = folder_of("masked_lm").parent / "made"
    with pytest.raises(ValueError, match="is no model folder, so how its text was"):
        MODEL_REGISTRY["posenc_masked_lm"].from_pretrained(str(made), data_name_or_path="data")
