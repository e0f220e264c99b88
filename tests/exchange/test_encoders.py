"""Exported classifiers read text as fairseq and the subwords of training do, and have labels."""

import json

import pytest
import torch
from support.conversion import SYMBOLS, convert, learn_pieces, refuses, save_folder
from support.expressed import SHAPE, load, trained

import fairseq_posenc
from fairseq_posenc.checkpoints.reading import load_file, write_checkpoint
from fairseq_posenc.models.kinds import PAD, SENTENCE_HEAD
from fairseq_posenc.serving.preparation import Preparation, Text

pytestmark = pytest.mark.journeys

LEARNED = {"position_encoding": "learned"}


def trained_on(path, data, **task):
    """A checkpoint of ours as if trained on a task, beside which its dictionary is not needed."""
    state = load_file(path)
    state["cfg"]["task"] = {"_name": "sentence_prediction", "data": str(data), **task}
    write_checkpoint(state, str(path))
    return path


def test_a_model_folder_is_exported_with_its_labels_and_subwords(transformers, tmp_path):
    texts = ["a cab had a bad dab", "bad cad", "a hag bags a cab", "dada", "<s> a  ☃", "cab </s>"]
    file = learn_pieces(tmp_path / "m", texts[:4] * 9, vocab_size=14)
    split = Preparation(Text(subwords="sentencepiece", subword_file=str(file))).source
    words = sorted({symbol for text in texts[:2] for symbol in split(text)})
    path = trained(tmp_path / "ours", SENTENCE_HEAD, words=words, num_segments=0, **LEARNED)
    data = tmp_path / "data"
    for part, symbols in (("input0", words), ("label", ["good", "bad", "fair"])):
        (data / part).mkdir(parents=True)
        (data / part / "dict.txt").write_text("".join(f"{s} 1\n" for s in symbols), "utf-8")
    task = {"num_classes": 3, "init_token": 0, "regression_target": False, "max_positions": 40}
    trained_on(path, data, classification_head_name=SENTENCE_HEAD, **task)
    flags = ["--data", data, "--tokenizer", "none", "--subwords", "sentencepiece"]
    convert("pack", path, tmp_path / "packed", *flags, "--subword-file", file)
    for place in (path, data / "input0" / "dict.txt", data / "label" / "dict.txt"):
        place.unlink()
    convert("export", "hf-roberta", tmp_path / "packed", tmp_path / "out", "--verify")
    model = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "out")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    packed = fairseq_posenc.from_pretrained(str(tmp_path / "packed"))
    with torch.no_grad():
        theirs = model.eval()(**tokenizer(texts, return_tensors="pt", padding=True)).logits
        ours = [packed.predict(SENTENCE_HEAD, packed.encode(text)).exp()[0] for text in texts]
    assert packed.folder.head.labels == [model.config.id2label[number] for number in range(3)]
    torch.testing.assert_close(theirs.softmax(-1), torch.stack(ours), atol=1e-5, rtol=1e-5)


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    """A classifier of ours, and the data with the names of its classes."""
    folder = tmp_path_factory.mktemp("classifier")
    path = trained(folder / "ours", "topic", **LEARNED, num_segments=2)
    (folder / "data" / "label").mkdir(parents=True)
    (folder / "data" / "label" / "dict.txt").write_text("sport 4\nart 3\nfood 2\n")
    return path, folder / "data"


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
    segments = batch["token_type_ids"]
    want, _ = load(path)(torch.tensor(rows), segments, classification_head_name="topic")
    torch.testing.assert_close(model.eval()(**batch).logits, want, atol=1e-5, rtol=1e-5)
    assert tokenizer.decode(tokenizer("a <mask> b")["input_ids"]) == "<s> a <mask> b </s>"
    assert tokenizer.model_max_length == SHAPE["max_positions"]


def test_tokenizers_and_labels_of_others_are_refused(tmp_path, out, classifier):
    path, _ = classifier
    other = save_folder(tmp_path / "other", {}, {}, SYMBOLS)
    words = [f"--subword-file {other}", "dict.txt", "give the tokenizer"]
    flags = ("--subwords", "transformers", "--subword-file", other)
    refuses(words, "export", "hf-roberta", path, out, *flags)
    words = ["--subwords transformers", "hf-roberta", "no effect on hf-roformer"]
    refuses(words, "export", "hf-roformer", path, out, "--subwords", "transformers")
    (tmp_path / "data" / "label").mkdir(parents=True)
    (tmp_path / "data" / "label" / "dict.txt").write_text("sport 4\n")
    words = ["names 1 labels", "3 classes"]
    refuses(words, "export", "hf-roberta", path, out, "--data", tmp_path / "data")


def test_a_regression_says_so(tmp_path, out, classifier):
    pytest.importorskip("safetensors", reason="the weights are written with it")
    path, data = classifier
    vocab, other = path.parent / "dict.txt", tmp_path / "regression.pt"
    other.write_bytes(path.read_bytes())
    trained_on(other, data, regression_target=True)
    convert("export", "hf-roberta", other, out, "--vocab", vocab, "--data", data)
    config = json.loads((out / "config.json").read_text())
    assert config["problem_type"] == "regression" and config["id2label"]["0"] == "LABEL_0"
