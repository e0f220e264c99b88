"""RoBERTa of transformers, in and out: logits, labels, tokenizers, and refusals by name."""

import json

import pytest
import torch
from support.conversion import SYMBOLS, convert, refuses, save_folder
from support.foreign_models import SHAPE, trained
from support.vocabularies import carried

from fairseq_posenc.checkpoints.reading import load_file, write_checkpoint
from fairseq_posenc.exchange import native
from fairseq_posenc.models.kinds import PAD

LEARNED = {"position_encoding": "learned"}


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    """A classifier of ours, and the data with the names of its classes."""
    folder = tmp_path_factory.mktemp("classifier")
    path = trained(folder / "ours", "topic", **LEARNED, num_segments=2)
    (folder / "data" / "label").mkdir(parents=True)
    (folder / "data" / "label" / "dict.txt").write_text("sport 4\nart 3\nfood 2\n")
    return path, folder / "data"


def test_labels_are_those_of_the_data(transformers, tmp_path, classifier):
    path, data = classifier
    convert("export", "hf-roberta", path, tmp_path / "out", "--verify", "--data", data)
    config = transformers.AutoConfig.from_pretrained(tmp_path / "out")
    assert config.id2label == {0: "sport", 1: "art", 2: "food"}
    name = "RobertaForSequenceClassification"
    convert("import", "hf-roberta", tmp_path / "out", tmp_path / "back", "--verify")
    assert (tmp_path / "back" / "label" / "dict.txt").read_text() == "sport 1\nart 1\nfood 1\n"
    model = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "out")
    assert type(model).__name__ == name
    (data / "label" / "dict.txt").write_text("sport 4\n")
    words = ["names 1 labels", "3 classes"]
    refuses(words, "export", "hf-roberta", path, tmp_path / "none", "--data", data)


@torch.no_grad()
def test_text_goes_in_as_in_fairseq(transformers, tmp_path, classifier):
    """The written tokenizer gives the numbers, segments and padding of fairseq's batches."""
    path, _ = classifier
    convert("export", "hf-roberta", path, tmp_path / "out")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    batch = tokenizer([["a b a", "b b"], ["a", "unheard"]], return_tensors="pt", padding=True)
    a, b, unknown = 4, 5, 3
    rows = [[0, a, b, a, 2, 2, b, b, 2], [0, a, 2, 2, unknown, 2, PAD, PAD, PAD]]
    assert batch["input_ids"].tolist() == rows
    model = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "out")
    ours = native.load(str(path), str(path.parent / "dict.txt"))
    want, _ = ours(torch.tensor(rows), batch["token_type_ids"], classification_head_name="topic")
    torch.testing.assert_close(model.eval()(**batch).logits, want, atol=1e-5, rtol=1e-5)
    assert tokenizer.decode(tokenizer("a <mask> b")["input_ids"]) == "<s> a <mask> b </s>"
    assert tokenizer.model_max_length == SHAPE["max_positions"]


def test_tokenizers_of_others_are_refused(tmp_path, out, classifier):
    path, _ = classifier
    other = save_folder(tmp_path / "other", {}, {}, SYMBOLS)
    words = [f"--subword-file {other}", "dict.txt", "give the tokenizer"]
    refuses(words, "export", "hf-roberta", path, out, *carried(other))
    words = ["--subwords transformers", "hf-roberta", "no effect on hf-roformer"]
    refuses(words, "export", "hf-roformer", path, out, "--subwords", "transformers")


def test_a_regression_says_so(transformers, tmp_path, classifier):
    path, data = classifier
    state = load_file(path)
    state["cfg"]["task"] = {"_name": "sentence_prediction", "regression_target": True}
    other = tmp_path / "regression.pt"
    write_checkpoint(state, str(other))
    vocab = path.parent / "dict.txt"
    out = tmp_path / "out"
    convert("export", "hf-roberta", other, out, "--vocab", vocab, "--data", data)
    config = json.loads((out / "config.json").read_text())
    assert config["problem_type"] == "regression" and config["id2label"]["0"] == "LABEL_0"
