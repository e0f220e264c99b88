"""Data of the language-model recipe: characters and bytes without loss, words as they are."""

import gzip
import os
import random

import pytest
from fairseq.data import Dictionary, data_utils
from support.language_models import PREPARE, wikitext
from support.recipes import assert_error, bash, commands, recipe_module, succeed

from fairseq_posenc.serving.subwords import BYTES

characters = recipe_module("language_model", "characters")

NUMBERS = {symbol: byte for byte, symbol in BYTES["enwik8"].items()}


# --- characters


def read_back(folder, split):
    """The bytes of a data set, and the lengths of its items."""
    dictionary = Dictionary.load(str(folder / "dict.txt"))
    items = data_utils.load_indexed_dataset(str(folder / split), dictionary)
    symbols = [dictionary[number] for item in items for number in item.tolist()]
    return " ".join(symbols), [len(item) for item in items]


def test_data_are_the_text_split_by_position_and_nothing_else(tmp_path):
    text = bytes(random.Random(2).choices(range(256), k=100_059))
    (tmp_path / "file").write_bytes(text)
    succeed(PREPARE, "enwik8", "file", "out", cwd=tmp_path)
    parts = []
    for split, size in (("train", 90_055), ("valid", 5_002), ("test", 5_002)):
        symbols, lengths = read_back(tmp_path / "out" / "data-bin", split)
        assert sum(lengths) == size and max(lengths) <= characters.ITEM
        parts.append(bytes(NUMBERS[symbol] for symbol in symbols.split()))
    assert b"".join(parts) == text
    assert sorted(os.listdir(tmp_path / "out")) == [".lock", "data-bin", "steps", "text"]


@pytest.mark.parametrize("kind", ["enwik8", "text8"])
def test_a_compressed_corpus_is_refused(tmp_path, kind):
    (tmp_path / "file.gz").write_bytes(gzip.compress(bytes(range(97, 123)) * 10))
    result = bash(PREPARE, kind, "file.gz", "out", cwd=tmp_path)
    assert_error(result, "binarize: python stopped")
    assert "file.gz: is compressed; unpack it first: gunzip" in result.stderr


def test_words_with_a_byte_order_mark_or_compressed_are_refused(tmp_path):
    for name, content in (("train", b"\xef\xbb\xbfa b\n"), ("valid", gzip.compress(b"a b\n"))):
        for split in ("train", "valid"):
            (tmp_path / f"{split}.txt").write_bytes(content if split == name else b"a b\n")
        result = bash(PREPARE, "wikitext", tmp_path, "out", cwd=tmp_path)
        assert result.returncode == 1 and f"{name}.txt: " in result.stderr
        assert ("byte-order mark" if name == "train" else "gunzip") in result.stderr
    assert not (tmp_path / "out" / "data-bin").exists()


def test_other_bytes_are_refused_with_their_place(tmp_path):
    (tmp_path / "file").write_bytes(b"only letters\n" * 10)
    result = bash(PREPARE, "text8", "file", "out", cwd=tmp_path)
    assert_error(result, "binarize: python stopped")
    assert "byte 0x0a at 12 is not in text8" in result.stderr
    assert not (tmp_path / "out" / "data-bin").exists()


# --- words


@pytest.mark.parametrize("names", ["wiki.{}.tokens", "{}.txt"])
def test_words_of_wikitext_stay_as_they_are(names, tmp_path):
    folder = wikitext(tmp_path / "wikitext", names)
    succeed(PREPARE, "wikitext", "wikitext", "out", "--workers", "1", cwd=tmp_path)
    lines = (folder / names.format("train")).read_text().splitlines()
    found, lengths = read_back(tmp_path / "out" / "data-bin", "train")
    # also for an empty line: that is how the tokens of WikiText are counted
    assert found.split() == [w for line in lines for w in [*line.split(), "</s>"]]
    assert len(lengths) == 40
    again = bash(PREPARE, "wikitext", "wikitext", "out", "--workers", "1", cwd=tmp_path)
    assert again.stderr.count("already done") == 1 and "\n+ " not in again.stderr
    (tmp_path / "out" / "data-bin" / "valid.idx").unlink()
    gone = bash(PREPARE, "wikitext", "wikitext", "out", "--workers", "1", cwd=tmp_path)
    assert gone.returncode == 0 and "valid.idx is gone" in gone.stderr
    assert read_back(tmp_path / "out" / "data-bin", "train") == (found, lengths)
    with open(folder / names.format("valid"), "a") as stream:
        stream.write(" more\n")
    changed = bash(PREPARE, "wikitext", "wikitext", "out", "--workers", "1", cwd=tmp_path)
    assert "already done" not in changed.stderr


# --- running text in subwords


def test_articles_become_lines(tmp_path):
    options = ["--articles", "--vocabulary-size", "300", "--dry-run"]
    found = commands(bash(PREPARE, "subwords", "text", "out", *options, cwd=tmp_path))
    divided = [command for command in found if "documents" in command]
    assert divided and all("--one-line" in each and "wikitext" in each for each in divided)
    plain = commands(bash(PREPARE, "subwords", "text", "out", *options[1:], cwd=tmp_path))
    assert not any("--one-line" in command for command in plain)
    refused = bash(PREPARE, "text8", "text", "out", *options[:1], cwd=tmp_path)
    assert "--articles: has no effect on text8; it is for the kind subwords" in refused.stderr


@pytest.mark.parametrize("subwords", ["byte-bpe", "sentencepiece"])
def test_subwords_are_learned_and_kept_with_the_data(subwords, tmp_path):
    options = ["--subwords", subwords, "--vocabulary-size", "300", "--dry-run"]
    found = commands(bash(PREPARE, "subwords", "text", "out", *options, cwd=tmp_path))
    (learning,) = [command for command in found if "learn-subwords" in command]
    assert learning[2] == subwords and "300" in learning
    (binarizing,) = [command for command in found if command[0] == "fairseq-preprocess"]
    assert ("--srcdict" in binarizing) == (subwords == "byte-bpe")
    kept = "tokenizer" if subwords == "byte-bpe" else "sentencepiece.model"
    assert any(command[0] == "cp" and command[-1].endswith(kept) for command in found)
