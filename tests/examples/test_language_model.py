"""The recipes for language models and long documents: complete data, training and resuming."""

import json
import random
import re

import pytest
from fairseq.data import Dictionary, data_utils
from support.commands import read, shape
from support.recipes import EXAMPLES, recipe_module, succeed, write

from fairseq_posenc.serving.subwords import BYTES

pytestmark = pytest.mark.journeys

RECIPE = EXAMPLES / "language_model"
PREPARE, TRAIN = (RECIPE / name for name in ("prepare.sh", "train.sh"))


headings = recipe_module("long_documents", "headings")
characters = recipe_module("language_model", "characters")

NUMBERS = {symbol: byte for byte, symbol in BYTES["enwik8"].items()}


# --- characters


def read_back(folder, split):
    """The symbols of a data set, and the lengths of its items."""
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
    assert b"".join(parts) == text and characters.BYTES == BYTES
    again = succeed(PREPARE, "enwik8", "file", "out", cwd=tmp_path)
    assert again.stdout == "out/data-bin exists already\n"


# --- running text in subwords


@pytest.mark.parametrize("subwords", ["byte-bpe", "sentencepiece"])
def test_running_text_and_articles_in_subwords(subwords, tmp_path):
    if subwords == "byte-bpe":
        pytest.importorskip("tokenizers", reason="byte-level BPE needs tokenizers")
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
    name = {"byte-bpe": "tokenizer/tokenizer.json"}.get(subwords, f"{subwords}.model")
    assert (data / name).exists()


# --- from text to models

TINY = [*shape(1, 16, 16, 2, "decoder"), "--num-workers", "0", "--lr", "0.01"]
SMALL = ["--cpu", "--tokens-per-sample", "16", "--update-freq", "1"]
ADAPTIVE = (
    "--criterion adaptive_loss --ddp-backend legacy_ddp --adaptive-input "
    "--adaptive-input-cutoff 4,6 --adaptive-softmax-cutoff 4,6 --tie-adaptive-weights "
    "--tie-adaptive-proj --decoder-input-dim 16 --decoder-output-dim 16"
).split()


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """The data that prepare.sh makes from a made-up WikiText, in which some lines are empty."""
    folder, draw = tmp_path_factory.mktemp("words"), random.Random(4)
    (folder / "wikitext").mkdir()
    for split, count in (("train", 40), ("valid", 10)):
        lines = [
            " " + " ".join(draw.choices(["the", "<unk>", "cat", "@-@", "=", "."], k=5 * (n % 3)))
            for n in range(count)
        ]
        write(folder / "wikitext" / f"wiki.{split}.tokens", lines)
    succeed(PREPARE, "wikitext", "wikitext", "out", cwd=folder)
    return folder / "out" / "data-bin"


def test_words_are_prepared_trained_on_and_trained_further(data, tmp_path):
    lines = (data.parents[1] / "wikitext" / "wiki.train.tokens").read_text().splitlines()
    found, lengths = read_back(data, "train")
    # an empty line has a </s>, too, which counts as a token of WikiText
    assert found.split() == [w for line in lines for w in [*line.split(), "</s>"]]
    assert len(lengths) == 40
    words = ["rotary", data, "run", *SMALL, *TINY, *ADAPTIVE, "--arch", "gau_lm_small"]
    for updates in ("3", "6"):
        done = succeed(TRAIN, *words, cwd=tmp_path, PRECISION="", UPDATES=updates)
    assert "Loaded checkpoint run/checkpoint_last.pt" in done.stdout + done.stderr
    log = (tmp_path / "run" / "train.log").read_text()
    assert "AdaptiveSoftmax" in log and log.count("done training") == 2
    losses = [float(loss) for loss in re.findall(r"valid on .* \| loss ([\d.]+)", log)]
    assert losses[-1] < losses[0] and log.count("num_updates 6") >= 1


# --- long documents


def test_a_model_goes_on_with_longer_samples(data, tmp_path):
    tiny = [*shape(1, 16, 16, 2, "decoder"), "--cpu", "--num-workers", "0", "--max-update", "2"]
    train = EXAMPLES / "long_documents" / "train.sh"
    given = {"SHORT": "8", "WINDOW": "4", "PRECISION": "", "cwd": tmp_path}
    succeed(train, "language", "rotary", "8", data, "short", "none", *tiny, **given)
    start = "short/checkpoint_last.pt"
    words = ["language", "local", "16", data, "long", start, *tiny[-5:]]
    succeed(train, *words, **given)
    (_, short), (_, long) = (
        read(tmp_path / name / "checkpoint_last.pt") for name in ("short", "long")
    )
    assert (short["tokens_per_sample"], long["tokens_per_sample"]) == (8, 16)
    assert long["local_window"] == "4" and long["decoder_embed_dim"] == 16


ARTICLE = """ = {0} =

 {0} is a thing .
 = = {0} one = =
 a b c
 = = = {0} two = = =
 d e
 = = {0} three = =
 f
"""


def test_headings_are_of_the_sections_that_the_excerpt_has():
    lines = "".join(map(ARTICLE.format, "AB")).splitlines()
    found = list(headings.articles(lines, words=9))
    assert [article.body for article in found] == [f"{x} is a thing . a b c d" for x in "AB"]
    assert [article.headings for article in found] == [f"{x} one ; {x} two" for x in "AB"]
    assert not list(headings.articles(lines, words=8))  # fewer than two headings


def test_half_of_the_examples_have_the_headings_of_another_article(tmp_path):
    articles = [headings.Article(f"h {n}", f"text {n}") for n in range(5)]
    rows = [line.rstrip("\n").split("\t") for line in headings.examples(articles, seed=3)]
    assert len(rows) == 10 and len({tuple(row) for row in rows}) == 10
    for given, body, label in rows:
        assert (given.split()[1] == body.split()[1]) == (label == "yes")
    assert rows == [line.rstrip("\n").split("\t") for line in headings.examples(articles, seed=3)]
    with pytest.raises(SystemExit, match="same headings"):
        list(headings.examples(articles[:1], 1))
    for split in ("train", "valid"):
        (tmp_path / f"{split}.txt").write_text("".join(map(ARTICLE.format, "ABC")))
    headings.main(str(tmp_path), str(tmp_path / "out"))
    lines = (tmp_path / "out" / "dev.tsv").read_text().splitlines()
    assert len(lines) == 7 and lines[0] == "headings\tbody\tbelongs"
