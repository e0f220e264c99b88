"""Exported classifiers split and number text as in training, and keep the names of their labels."""

import json
import shutil

import pytest
import torch
from support.conversion import SYMBOLS, convert, learn_pieces, refuses, save_folder
from support.expressed import EXPRESSED, checkpoint_of, trained

import fairseq_posenc
from fairseq_posenc.checkpoints.reading import load_file, write_checkpoint
from fairseq_posenc.models.kinds import SENTENCE_HEAD
from fairseq_posenc.serving.preparation import Preparation, Text

pytestmark = pytest.mark.journeys

TEXTS = ["a cab had a bad dab", "bad cad", "a hag bags a cab", "dada", "<s> a  ☃", "cab </s>"]


def trained_on(path, data, **task):
    """Change our checkpoint as if it had been trained on a task."""
    state = load_file(path)
    usual = {"num_classes": 3, "init_token": 0, "separator_token": 2, "max_positions": 40}
    usual.update(_name="sentence_prediction", classification_head_name=SENTENCE_HEAD)
    state["cfg"]["task"] = {**usual, "data": str(data), "regression_target": False, **task}
    write_checkpoint(state, str(path))


@pytest.fixture
def classifier(tmp_path):
    """Our classifier's checkpoint, and its data folder; the subword file is beside it."""
    folder = tmp_path / "made"
    folder.mkdir()
    file = learn_pieces(folder / "m", TEXTS[:4] * 9, vocab_size=14)
    split = Preparation(Text(subwords="sentencepiece", subword_file=str(file))).source
    words = sorted({symbol for text in TEXTS[:2] for symbol in split(text)})
    shape = {"position_encoding": "learned", "num_segments": 2}
    path = trained(folder / "ours", SENTENCE_HEAD, words=words, **shape)
    for part, symbols in (("input0", words), ("label", ["good", "bad", "fair"])):
        (folder / "data" / part).mkdir(parents=True)
        (folder / "data" / part / "dict.txt").write_text(
            "".join(f"{s} 1\n" for s in symbols), "utf-8"
        )
    trained_on(path, folder / "data")
    return path, folder / "data"


@pytest.mark.parametrize("task", [{}, {"init_token": None, "separator_token": None}], ids=str)
@torch.no_grad()
def test_a_model_folder_is_exported_with_its_labels_and_subwords(
    task, transformers, tmp_path, classifier
):
    """Texts and pairs of texts get the same token numbers, segments and padding as in fairseq."""
    path, data = classifier
    trained_on(path, data, **task)
    flags = ["--data", data, "--tokenizer", "none", "--subwords", "sentencepiece"]
    convert("pack", path, tmp_path / "packed", *flags, "--subword-file", data.parent / "m.model")
    shutil.rmtree(data.parent)
    convert("export", "hf-roberta", tmp_path / "packed", tmp_path / "out", "--verify")
    model = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "out")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    packed = fairseq_posenc.from_pretrained(str(tmp_path / "packed"))
    assert packed.folder.head.labels == [model.config.id2label[number] for number in range(3)]
    for pairs in ([[text] for text in TEXTS], [*zip(TEXTS, TEXTS[::-1])]):
        batch = tokenizer(*map(list, zip(*pairs)), return_tensors="pt", padding=True)
        have = model.eval()(**batch).logits.log_softmax(-1)
        want = [packed.predict(SENTENCE_HEAD, packed.encode(*pair))[0] for pair in pairs]
        torch.testing.assert_close(have, torch.stack(want), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    "row, task, model, pair",
    [
        ("gpt2", {"add_bos_token": True}, {}, "<s> a b"),
        ("gpt2", {"add_bos_token": False}, {}, "</s> a b"),
        ("segments", {"sample_break_mode": "eos"}, {"segments": "pairs"}, "<s> a </s> b </s>"),
        ("segments", {}, {"segments": "single"}, "<s> a </s> </s> b </s>"),
    ],
)
def test_special_symbols_are_those_of_training(row, task, model, pair, transformers, tmp_path):
    path = checkpoint_of(tmp_path / "ours", row, ["a", "b"])
    state = load_file(path)
    state["cfg"]["task"].update(task)
    state["cfg"]["model"].update(model)
    write_checkpoint(state, str(path))
    convert("export", EXPRESSED[row].target, path, tmp_path / "out")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    assert tokenizer.convert_ids_to_tokens(tokenizer("a", "b")["input_ids"]) == pair.split()
    config = json.loads((tmp_path / "out" / "config.json").read_text("utf-8"))
    assert config["bos_token_id"] == tokenizer.convert_tokens_to_ids(pair.split()[0])


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
    words = ["has 1 labels", "3 classes"]
    refuses(words, "export", "hf-roberta", path, out, "--data", tmp_path / "data")


def test_a_regression_says_so(tmp_path, out, classifier):
    pytest.importorskip("safetensors", reason="the weights are written with it")
    path, data = classifier
    trained_on(path, data, regression_target=True)
    convert("export", "hf-roberta", path, out, "--data", data)
    config = json.loads((out / "config.json").read_text())
    assert config["problem_type"] == "regression" and config["id2label"]["0"] == "LABEL_0"
