"""From text to tokens and back, in model folders as in the commands."""

import json
import shutil

import pytest
import torch
from support.conversion import CONFIG, SYMBOLS
from support.model_folders import write_task_model

import fairseq_posenc
from fairseq_posenc import cli
from fairseq_posenc.serving.model_folder import read_model_folder
from fairseq_posenc.serving.preparation import Preparation, Text
from tests.serving.test_tokens_of_transformers import WORDS, folder_of

pytestmark = pytest.mark.formulas

CODES = "#version: 0.2\nt h\nth e</w>\nl o\nlo n\nlon g\n2 0\n"


def prepared(folder, **text):
    """The preparation of a folder whose file of subwords is ``codes``."""
    return Preparation(Text(subword_file="codes", **text), str(folder))


@pytest.fixture
def codes(tmp_path):
    (tmp_path / "codes").write_text(CODES)
    return tmp_path


@pytest.mark.parametrize("lowercase", [False, True])
def test_english_comes_back(codes, lowercase):
    words = {"source_lang": "en", "tokenizer": "moses", "lowercase": lowercase}
    text = prepared(codes, subwords="subword-nmt", **words)
    assert text.restore(text.source("It isn't long.")).lower() == "it isn't long."
    assert any(token.isupper() for token in text.source("LONG")) != lowercase


@pytest.mark.parametrize("tokenizer", ["jieba", "none"])
def test_chinese_comes_back(codes, tokenizer):
    if tokenizer == "jieba":
        pytest.importorskip("jieba", reason="an extra: words of Chinese text")
    text = prepared(codes, tokenizer=tokenizer, subwords="marked-pieces")
    assert text.restore(text.source("在公园 long the 散步。")) == "在公园long the散步。"


def pack(model, out, *flags):
    words = ["pack", model / "model.pt", out, "--data", model / "data", *flags]
    cli.main([str(word) for word in words])
    return read_model_folder(str(out))


def test_packs_a_tokenizer_of_transformers(tmp_path):
    pytest.importorskip("tokenizers", reason="an extra: tokens of transformers")
    model = write_task_model(tmp_path / "made", "sentence_prediction")
    source = folder_of(tmp_path / "tokenizer", SYMBOLS[:6] + WORDS, do_lower_case=True)
    splitting = ["--subwords", "transformers", "--subword-file", source]
    with pytest.raises(SystemExit, match="its symbols are not those of the model's dictionary"):
        pack(model, tmp_path / "out", *splitting)
    with pytest.raises(SystemExit, match="takes the text as it is; drop --tokenizer"):
        pack(model, tmp_path / "out", *splitting, "--lowercase")
    with pytest.raises(SystemExit, match="has neither vocab.txt nor tokenizer.json"):
        pack(model, tmp_path / "out", *splitting[:3], model)
    assert not (tmp_path / "out").exists()
    lines = (model / "data/input0/dict.txt").read_text().splitlines()
    names = [line.split()[0] for line in lines]
    symbols = [*SYMBOLS[:1], *SYMBOLS[2:6], *names]
    shutil.rmtree(source)
    folder_of(source, symbols, do_lower_case=True)
    folder = pack(model, tmp_path / "out", *splitting)
    assert folder.text.subword_file == "tokenizer"
    assert json.loads((tmp_path / "out/tokenizer/tokenizer_config.json").read_text())
    assert Preparation(folder.text, folder.path).source("The CAT") == ["the", "cat"]


def imported(tmp_path, kind, **settings):
    """A random RoFormer of transformers, its symbols, and its model folder after the import."""
    pytest.importorskip("tokenizers", reason="an extra: tokens of transformers")
    pytest.importorskip("rjieba", reason="RoFormer's tokenizer splits text by it")
    transformers = pytest.importorskip("transformers", reason="there is nothing to compare with")
    symbols = SYMBOLS[:6] + WORDS
    config = {**CONFIG, "vocab_size": len(symbols), **settings}
    theirs = getattr(transformers, kind)(transformers.RoFormerConfig(**config))
    theirs.eval().save_pretrained(tmp_path / "theirs")
    folder_of(tmp_path / "theirs", symbols)
    cli.main(["import", "hf-roformer", str(tmp_path / "theirs"), str(tmp_path / "imported")])
    splitting = ["--subwords", "transformers", "--subword-file", str(tmp_path / "theirs")]
    arguments = [str(tmp_path / "imported" / "checkpoint.pt"), str(tmp_path / "model"), *splitting]
    cli.main(["pack", *arguments, "--data", str(tmp_path / "imported")])
    return theirs, symbols, fairseq_posenc.from_pretrained(tmp_path / "model")


def test_the_tokenizers_own_mask_is_filled(tmp_path):
    _, _, model = imported(tmp_path, "RoFormerForMaskedLM")
    filled = [model.fill_mask(f"the {mask} ran", topk=3) for mask in ("[MASK]", "<mask>")]
    assert filled[0] == filled[1]
    for text, _, word in filled[0]:
        assert text == f"the {word} ran"


@torch.no_grad()
def test_an_imported_classifier_predicts_as_in_transformers(tmp_path):
    """From text to probabilities: tokens, separators, segments and weights."""
    theirs, symbols, model = imported(tmp_path, "RoFormerForSequenceClassification", num_labels=3)
    names = {"<s>": "[CLS]", "</s>": "[SEP]"}
    for texts in (("我爱 the cats", "在公园里散步。"), ("the cat ran",)):
        row = model.encode(*texts)
        tokens = [model.task.source_dictionary[number] for number in row.tolist()]
        first = tokens.index("</s>") + 1
        numbers = [symbols.index(names.get(token, token)) for token in tokens]
        segments = [0] * first + [1] * (len(tokens) - first)
        logits = theirs(torch.tensor([numbers]), token_type_ids=torch.tensor([segments])).logits[0]
        found = model.predict(model.folder.head.name, row, return_logits=True)[0]
        assert found.tolist() == pytest.approx(logits.tolist(), abs=1e-5)
        assert tokens.count("</s>") == len(texts)
    with pytest.raises(ValueError, match="fine-tuned as a classifier"):
        model.fill_mask("the <mask>")


def test_a_tokenizer_needs_its_file(tmp_path):
    model = write_task_model(tmp_path / "made", "masked_lm")
    with pytest.raises(SystemExit, match="give one of subword-nmt, .* with --subword-file"):
        pack(model, tmp_path / "out", "--subwords", "marked-pieces")
    flags = ["--lowercase", "--tokenizer", "jieba", "--trust-subwords"]
    folder = pack(model, tmp_path / "out", *flags)
    assert folder.text == Text(tokenizer="jieba", lowercase=True)
    card = (tmp_path / "out/README.md").read_text()
    assert "Tokeniser: jieba; subwords: none; lower case." in card
