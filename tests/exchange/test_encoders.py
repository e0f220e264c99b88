"""Exported encoders read raw text as fairseq and the subwords of the training do, and have labels.

Each tokenizer is read by the automatic class, and its batch goes into the model as it is.
"""

import json
import random
from typing import Any

import pytest
import torch
from fairseq.data import Dictionary
from support.conversion import SYMBOLS, convert, refuses, save_folder
from support.foreign_models import MODERN, SHAPE, trained
from support.vocabularies import carried, learn_pieces, save_tokenizer

import fairseq_posenc
from fairseq_posenc.checkpoints.reading import load_file, write_checkpoint
from fairseq_posenc.exchange import native
from fairseq_posenc.models.kinds import EMBEDDING, PAD
from fairseq_posenc.serving.huggingface.dictionary import dictionary
from fairseq_posenc.serving.preparation import Preparation, Text

SYLLABLES = "ba be bi do du fa kü lo mi ña os pu".split()
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


def lines_of(seed, count):
    draw = random.Random(seed)
    words = ["".join(draw.choices(SYLLABLES, k=draw.randint(1, 3))) for _ in range(40)]
    return [" ".join(draw.choices(words, k=draw.randint(2, 9))) for _ in range(count)]


TRAIN, TEST = lines_of(1, 200), [*lines_of(1, 215)[200:], *lines_of(2, 10), "bado ☃ lo"]
SPACED = "ba   be  bi"
TEST += ["<s> ba", "</s>", "ba <pad>", "<unk>be", "ba <mask> be", "[CLS] ba [SEP]", SPACED]


def unigram(folder):
    return "sentencepiece", learn_pieces(folder / "m", TRAIN, vocab_size=50)


def byte_pairs(folder):
    tokenizers = pytest.importorskip("tokenizers", reason="learns the merges")
    made = tokenizers.ByteLevelBPETokenizer()
    made.train_from_iterator(TRAIN, 300, show_progress=False, special_tokens=SPECIAL[::-1])
    made.add_tokens(["   ", "  "])  # as ModernBERT's and GPT-NeoX's have them
    save_tokenizer(folder, made)
    return "transformers", folder


def word_pieces(folder):
    pytest.importorskip("tokenizers", reason="splits the text")
    symbols = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]", *SYLLABLES]
    symbols += [f"##{syllable}" for syllable in SYLLABLES] + ["☃"]
    (folder / "vocab.txt").write_text("\n".join(symbols) + "\n", encoding="utf-8")
    (folder / "tokenizer_config.json").write_text('{"strip_accents": false}')
    return "transformers", folder


KINDS = {"unigram": unigram, "byte pairs": byte_pairs, "word pieces": word_pieces}
MODELS = {
    "hf-roberta": {"position_encoding": "learned", "num_segments": 0},
    "hf-modernbert": {**MODERN, "local_window": "200,8", "no_bias": True},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("format", MODELS)
@torch.no_grad()
def test_raw_text_gives_the_logits_of_fairseq(format, kind, transformers, tmp_path):
    (tmp_path / "subwords").mkdir()
    subwords, file = KINDS[kind](tmp_path / "subwords")
    preparation = Preparation(Text(subwords=subwords, subword_file=str(file)))
    words = _dictionary(subwords, file, preparation)
    path = trained(tmp_path / "ours", words=words, **MODELS[format], max_positions=80)
    given = ["--subwords", subwords, "--subword-file", file, "--verify"]
    convert("export", format, path, tmp_path / "out", *given)
    model = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "out").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")

    symbols = native.read_native(str(path), None).symbols
    number = {symbol: index for index, symbol in enumerate(symbols)}
    lines = [[number.get(s, 3) for s in preparation.source(line)] for line in TEST]
    longest = max(map(len, lines)) + 2
    rows = [[0, *line, 2, *[PAD] * (longest - 2 - len(line))] for line in lines]
    tokens = torch.tensor(rows)
    want, _ = native.load(str(path), str(path.parent / "dict.txt"))(tokens)
    batch = tokenizer(TEST, return_tensors="pt", padding=True)
    assert torch.equal(batch["attention_mask"].bool(), tokens.ne(PAD))
    have = model(**batch).logits
    roles = ("cls_token", "pad_token", "sep_token", "unk_token", "mask_token")
    names = {ours: getattr(tokenizer, role) for ours, role in zip(SPECIAL, roles)}
    names.update({"␣" * number: " " * number for number in (2, 3)})
    order = tokenizer.convert_tokens_to_ids([names.get(symbol, symbol) for symbol in symbols])
    assert kind != "byte pairs" or {number["␣␣"], number["␣␣␣"]} <= set(lines[-1])
    real = tokens.ne(PAD)
    torch.testing.assert_close(have[..., order][real], want[real], atol=1e-5, rtol=1e-5)
    best = torch.tensor(order)[want[real].argmax(-1)]  # a symbol of dict.txt
    assert torch.equal(have[real].argmax(-1), best)
    tokenizer.save_pretrained(tmp_path / "again")
    again = transformers.AutoTokenizer.from_pretrained(tmp_path / "again")
    assert again.model_max_length == 80
    assert again(TEST)["input_ids"] == tokenizer(TEST)["input_ids"]
    (masked,) = again([f"ba {again.mask_token} be"], split_special_tokens=False)["input_ids"]
    assert masked.count(again.mask_token_id) == 1
    convert("import", format, tmp_path / "out", tmp_path / "back", "--verify")
    returned = native.read_native(str(tmp_path / "back" / "checkpoint.pt"), None)
    before = native.read_native(str(path), None)
    ours = dict(zip(returned.symbols, returned.parameters[EMBEDDING]))
    assert set(returned.symbols) == set(before.symbols)
    for symbol, row in zip(before.symbols, before.parameters[EMBEDDING]):
        assert torch.equal(ours[symbol], row)


def _dictionary(subwords, file, preparation):
    """The symbols of a dict.txt: all of a tokenizer of transformers, or those of a text."""
    if subwords == "transformers":
        lines = dictionary(str(file)).splitlines()
        return [line.rpartition(" ")[0] for line in lines]
    found = Dictionary()
    for line in TRAIN[:20]:
        for symbol in preparation.source(line):
            found.add_symbol(symbol)
    found.finalize(padding_factor=1)
    return found.symbols[4:]


def test_a_model_folder_is_exported_with_its_labels_and_subwords(transformers, tmp_path):
    (tmp_path / "subwords").mkdir()
    subwords, file = unigram(tmp_path / "subwords")
    preparation = Preparation(Text(subwords=subwords, subword_file=str(file)))
    words = _dictionary(subwords, file, preparation)
    head = "sentence_classification_head"
    learned = {"position_encoding": "learned", "num_segments": 0}
    path = trained(tmp_path / "ours", head, words=words, num_positions=40, **learned)
    data = tmp_path / "data"
    for part, symbols in (("input0", words), ("label", ["good", "bad", "fair"])):
        (data / part).mkdir(parents=True)
        (data / part / "dict.txt").write_text("".join(f"{s} 1\n" for s in symbols), "utf-8")
    state = torch.load(path)
    state["cfg"]["task"] = {
        **{"_name": "sentence_prediction", "data": str(data), "classification_head_name": head},
        **{"num_classes": 3, "init_token": 0, "regression_target": False, "max_positions": 40},
    }
    torch.save(state, path)
    flags = ["--data", data, "--tokenizer", "none", "--subwords", subwords]
    convert("pack", path, tmp_path / "packed", *flags, "--subword-file", file)
    for place in (path, data / "input0" / "dict.txt", data / "label" / "dict.txt"):
        place.unlink()
    convert("export", "hf-roberta", tmp_path / "packed", tmp_path / "out", "--verify")
    model = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "out")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    packed: Any = fairseq_posenc.from_pretrained(str(tmp_path / "packed"))
    with torch.no_grad():
        theirs = model.eval()(**tokenizer(TEST, return_tensors="pt", padding=True)).logits
        head = packed.folder.head
        ours = [packed.predict(head.name, packed.encode(text)).exp()[0] for text in TEST]
    assert head.labels == [model.config.id2label[number] for number in range(len(head.labels))]
    for row, found in zip(theirs.softmax(-1), ours):
        assert found.tolist() == pytest.approx(row.tolist(), abs=1e-5)


LEARNED = {"position_encoding": "learned"}


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
    ours = native.load(str(path), str(path.parent / "dict.txt"))
    want, _ = ours(torch.tensor(rows), batch["token_type_ids"], classification_head_name="topic")
    torch.testing.assert_close(model.eval()(**batch).logits, want, atol=1e-5, rtol=1e-5)
    assert tokenizer.decode(tokenizer("a <mask> b")["input_ids"]) == "<s> a <mask> b </s>"
    assert tokenizer.model_max_length == SHAPE["max_positions"]


def test_tokenizers_and_labels_of_others_are_refused(tmp_path, out, classifier):
    path, _ = classifier
    other = save_folder(tmp_path / "other", {}, {}, SYMBOLS)
    words = [f"--subword-file {other}", "dict.txt", "give the tokenizer"]
    refuses(words, "export", "hf-roberta", path, out, *carried(other))
    words = ["--subwords transformers", "hf-roberta", "no effect on hf-roformer"]
    refuses(words, "export", "hf-roformer", path, out, "--subwords", "transformers")
    (tmp_path / "data" / "label").mkdir(parents=True)
    (tmp_path / "data" / "label" / "dict.txt").write_text("sport 4\n")
    words = ["names 1 labels", "3 classes"]
    refuses(words, "export", "hf-roberta", path, out, "--data", tmp_path / "data")


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
