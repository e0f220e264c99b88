"""Recipes with the tokens of a model of transformers: pre-training, then GLUE from its data."""

import pytest
from conversion import SYMBOLS
from fairseq.data import Dictionary, data_utils
from recipes import EXAMPLES, assert_error, bash, write
from test_tokenizer import WORDS, folder_of

from fairseq_posenc.tokenizer import tokenize

pytest.importorskip("tokenizers", reason="--tokenizer needs it")

TEXT = ["The cats ran, and the cat sat.", "", "在公园里散步。", "unbelievable CATS"]
COLA = ["gj04\t1\t\tThe cats ran.", "gj04\t0\t*\tCat the sat and"]


def sentences(folder, split):
    """The symbols of a binarised split."""
    dictionary = Dictionary.load(str(folder / "dict.txt"))
    data = data_utils.load_indexed_dataset(str(folder / split), dictionary)
    return [dictionary.string(line) for line in data]


def test_pre_training_and_glue_split_text_as_the_tokenizer_does(tmp_path):
    model = folder_of(tmp_path / "model", SYMBOLS[:6] + WORDS)
    for folder in ("text", "glue/CoLA"):
        (tmp_path / folder).mkdir(parents=True)
    for split in ("train", "valid"):
        write(tmp_path / "text" / f"{split}.txt", TEXT)
    for name in ("train", "dev"):
        write(tmp_path / "glue" / "CoLA" / f"{name}.tsv", COLA)
    recipe = EXAMPLES / "bert_pretraining" / "prepare.sh"
    made = bash(recipe, "text", "corpus", "--tokenizer", "model", "--workers", "1", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    data = tmp_path / "corpus" / "data-bin"
    assert sentences(data, "train") == list(tokenize(str(model), TEXT))
    assert (data / "tokenizer" / "vocab.txt").read_bytes() == (model / "vocab.txt").read_bytes()

    recipe = EXAMPLES / "glue" / "prepare.sh"
    made = bash(recipe, "glue", data, "out", "--workers", "1", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    want = list(tokenize(str(model), [line.split("\t")[3] for line in COLA]))
    assert sentences(tmp_path / "out" / "CoLA" / "input0", "train") == want
    assert want[0] == "the cat ##s ran ."

    folder_of(tmp_path / "other", [*SYMBOLS[:6], *WORDS, "more"])
    wrong = bash(recipe, "glue", data, "out2", "--tokenizer", "other", cwd=tmp_path)
    assert_error(wrong, "--tokenizer", "other", "its symbols are not those in")
    missing = bash(recipe, "glue", data, "out2", "--tokenizer", "glue", cwd=tmp_path)
    assert_error(missing, "--tokenizer glue: has neither vocab.txt nor tokenizer.json")
