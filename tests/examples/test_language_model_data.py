"""Data of the language-model recipe: characters and bytes without loss, words as they are."""

import gzip
import json
import random

import pytest
from fairseq.data import Dictionary, data_utils
from support.language_models import PREPARE, wikitext
from support.recipes import bash, recipe_module, succeed, write

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
    again = succeed(PREPARE, "enwik8", "file", "out", cwd=tmp_path)
    assert again.stdout == "out/data-bin is there\n"
    other = bash(PREPARE, "text8", "file", "out", cwd=tmp_path)
    assert other.returncode == 1 and "out has enwik8" in other.stderr


@pytest.mark.parametrize(
    "kind, content, message",
    [
        ("enwik8", gzip.compress(bytes(range(97, 123)) * 10), "is compressed; unpack it first"),
        ("text8", b"only letters\n" * 10, "byte 0x0a at 12 is not in text8"),
        ("text8", b"few", "has 3 bytes, too few to split"),
    ],
    ids=["compressed", "another byte", "short"],  # a compressed text has the time in it
)
def test_other_files_are_refused(tmp_path, kind, content, message, capsys):
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(SystemExit, match=message):
        characters.binarize(kind, str(tmp_path / "file"), str(tmp_path / "out"))
    assert f"is not the published {kind}" in capsys.readouterr().err or kind == "enwik8"
    assert not (tmp_path / "out").exists()
    assert characters.BYTES == BYTES


# --- words


@pytest.mark.parametrize("names", ["wiki.{}.tokens", "{}.txt"])
def test_words_of_wikitext_stay_as_they_are(names, tmp_path):
    folder = wikitext(tmp_path / "wikitext", names)
    succeed(PREPARE, "wikitext", "wikitext", "out", cwd=tmp_path, WORKERS="1")
    lines = (folder / names.format("train")).read_text().splitlines()
    found, lengths = read_back(tmp_path / "out" / "data-bin", "train")
    # also for an empty line: that is how the tokens of WikiText are counted
    assert found.split() == [w for line in lines for w in [*line.split(), "</s>"]]
    assert len(lengths) == 40


# --- running text in subwords


SAMPLE = ["", " = A = ", "", " an @-@ b <unk> ", " = = Part = = ", " c ", " = B = ", " d "]


@pytest.mark.parametrize("subwords", ["byte-bpe", "sentencepiece"])
def test_running_text_and_articles_in_subwords(subwords, tmp_path):
    if subwords == "byte-bpe":
        pytest.importorskip("tokenizers", reason="an extra: byte-level BPE")
    for split in ("train", "valid"):
        lines = ["the cat\n\n sat ", "a dog"] * 20
        write(tmp_path / f"{split}.jsonl", [json.dumps({"text": text}) for text in lines])
    given = {"SUBWORDS": subwords, "SIZE": "264" if subwords == "byte-bpe" else "268"}
    succeed(PREPARE, "subwords", ".", "out", cwd=tmp_path, **given)
    text = (tmp_path / "out" / "documents" / "train").read_text()
    assert text == "the cat\nsat\n\na dog\n\n" * 20
    data = tmp_path / "out" / "data-bin"
    symbols, _ = read_back(data, "train")
    assert symbols.count("</s>") == 100 and "<unk>" not in symbols
    assert (
        data / {"byte-bpe": "tokenizer/tokenizer.json"}.get(subwords, f"{subwords}.model")
    ).exists()


def test_articles_become_lines(tmp_path):
    pytest.importorskip("tokenizers", reason="an extra: byte-level BPE")
    for split in ("train", "valid"):
        write(tmp_path / f"{split}.txt", SAMPLE * 20)
    succeed(PREPARE, "subwords", ".", "out", cwd=tmp_path, ARTICLES="1", SIZE="264")
    text = (tmp_path / "out" / "documents" / "train").read_text()
    assert text == "A an-b unk Part c\nB d\n" * 20
