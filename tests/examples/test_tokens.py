"""Recipes with the tokens of a model of transformers: pre-training, GLUE and CLUE."""

import os

import pytest
from fairseq.data import Dictionary, data_utils
from support.conversion import SYMBOLS
from support.recipes import EXAMPLES, assert_error, bash, commands, succeed, write

from fairseq_posenc.text.commands import symbol_splitter as splitter
from tests.text.test_tokenizer import WORDS, folder_of

pytest.importorskip("tokenizers", reason="--tokenizer needs it")

TEXT = ["The cats ran, and the cat sat.", "", "在公园里散步。", "unbelievable CATS"]


def sentences(folder, split):
    """The symbols of a binarised split."""
    dictionary = Dictionary.load(str(folder / "dict.txt"))
    data = data_utils.load_indexed_dataset(str(folder / split), dictionary)
    return [dictionary.string(line) for line in data]


def test_text_is_split_as_the_tokenizer_does(tmp_path):
    model = folder_of(tmp_path / "model", SYMBOLS[:6] + WORDS)
    for folder in ("text", "glue/CoLA", "clue/TNEWS"):
        (tmp_path / folder).mkdir(parents=True)
    for split in ("train", "valid"):
        write(tmp_path / "text" / f"{split}.txt", TEXT)
    recipe = EXAMPLES / "bert_pretraining" / "prepare.sh"
    succeed(recipe, "text", "corpus", "--tokenizer", "model", "--workers", "1", cwd=tmp_path)
    data = tmp_path / "corpus" / "data-bin"
    assert sentences(data, "train") == splitter(str(model))(TEXT)
    assert (data / "tokenizer" / "vocab.txt").read_bytes() == (model / "vocab.txt").read_bytes()

    for name in ("glue", "clue"):  # with the tokenizer that pre-training has kept
        recipe = EXAMPLES / name / "prepare.sh"
        printed = commands(bash(recipe, name, data, "out", "--dry-run", cwd=tmp_path))
        calls = [words[2:] for words in printed if words[:2] == ["fairseq-posenc", "tokenize"]]
        kept, work = str(data / "tokenizer"), f"{tmp_path}/out/work"
        assert calls[0] == [kept, "--dictionary", f"{work}/dict.txt"]
        task = os.listdir(tmp_path / name)[0]
        parts = [f"{work}/{task}/{part}/input0/train" for part in ("text", "pieces")]
        assert any(words[0] == kept and " ".join(parts) in " ".join(words) for words in calls)
        assert not [words for words in printed if "apply-subwords" in words]

    recipe = EXAMPLES / "glue" / "prepare.sh"
    folder_of(tmp_path / "other", [*SYMBOLS[:6], *WORDS, "more"])
    wrong = bash(recipe, "glue", data, "out2", "--tokenizer", "other", cwd=tmp_path)
    assert_error(wrong, "--tokenizer", "other", "its symbols are not those in")
    missing = bash(recipe, "glue", data, "out2", "--tokenizer", "glue", cwd=tmp_path)
    assert_error(missing, "--tokenizer glue: has neither vocab.txt nor tokenizer.json")
