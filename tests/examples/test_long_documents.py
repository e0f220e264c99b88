"""Long-document recipe: models go on with longer samples, and the task that it makes."""

import pytest
from support.commands import read, shape
from support.language_models import PREPARE, wikitext
from support.recipes import (
    EXAMPLES,
    bash,
    check_flags,
    flags_of,
    recipe_module,
    stub_arguments,
    succeed,
)

TRAIN = EXAMPLES / "long_documents" / "train.sh"
headings = recipe_module("long_documents", "headings")


@pytest.mark.parametrize(
    "system, part, expected",
    [
        ("rotary", "masked", "--task masked_lm --max-positions 1024 --rotary-scaling absent"),
        (
            "yarn",
            "language",
            "--rotary-scaling yarn --rotary-scaling-factor 8 --rotary-original-length 128",
        ),
        ("local", "masked", "--attention local --local-window 64 --local-global-tokens 1"),
        ("local", "language", "--local-global-tokens absent"),
        ("bigbird", "language", "--attention bigbird --bigbird-block-size 16"),
        ("favor", "language", "--attention favor --linear-rotary inputs"),
        (
            "memory",
            "language",
            "--task language_modeling_with_memory --memory-length 896 --tokens-per-sample 128",
        ),
        ("full", "masked", "--position-encoding absent"),
    ],
)
def test_each_way_to_read(system, part, expected, tmp_path):
    given = {"SHORT": "128", "WINDOW": "64", "BLOCK": "16"}
    words = [part, system, "1024", "data", "run", "none", "--lr", "1"]
    (called,) = stub_arguments(TRAIN, *words, cwd=tmp_path, **given)
    check_flags(flags_of(called), f"{expected} --lr 1 --max-update 20000")


def test_a_model_goes_on_with_longer_samples(tmp_path):
    wikitext(tmp_path / "wikitext")
    succeed(PREPARE, "wikitext", "wikitext", "out", cwd=tmp_path)
    tiny = [*shape(1, 16, 16, 2, "decoder"), "--cpu", "--num-workers", "0", "--max-update", "2"]
    given = {"SHORT": "8", "WINDOW": "4", "PRECISION": "", "cwd": tmp_path}
    succeed(TRAIN, "language", "rotary", "8", "out/data-bin", "short", "none", *tiny, **given)
    start = "short/checkpoint_last.pt"
    words = ["language", "local", "16", "out/data-bin", "long", start, *tiny[-5:]]
    succeed(TRAIN, *words, **given)
    (_, short), (_, long) = (
        read(tmp_path / name / "checkpoint_last.pt") for name in ("short", "long")
    )
    assert (short["tokens_per_sample"], long["tokens_per_sample"]) == (8, 16)
    assert long["local_window"] == "4" and long["decoder_embed_dim"] == 16


def test_mistakes_are_one_line(tmp_path):
    for part, system, said in (
        ("text", "rotary", "text: expected language or masked"),
        ("language", "reformer", "reformer: expected rotary"),
        ("masked", "memory", "memory: is for language models"),
    ):
        refused = bash(TRAIN, part, system, "16", "data", "out", "none", cwd=tmp_path)
        assert refused.returncode == 1 and refused.stderr.startswith(f"train.sh: {said}")
    assert not list(tmp_path.iterdir())


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
    assert not list(headings.articles(lines, words=8))  # less than two headings
    whole = list(headings.articles(lines, words=99))
    assert [article.headings for article in whole] == [
        f"{x} one ; {x} two ; {x} three" for x in "AB"
    ]


def test_half_of_the_examples_have_the_headings_of_another_article(tmp_path):
    articles = [headings.Article(f"h {n}", f"text {n}") for n in range(5)]
    rows = [line.rstrip("\n").split("\t") for line in headings.examples(articles, seed=3)]
    assert len(rows) == 10 and len({tuple(row) for row in rows}) == 10
    for given, body, label in rows:
        assert (given.split()[1] == body.split()[1]) == (label == "yes")
    assert rows == [line.rstrip("\n").split("\t") for line in headings.examples(articles, seed=3)]
    with pytest.raises(SystemExit, match="same headings"):
        list(headings.examples(articles[:1], 1))
    (tmp_path / "train.txt").write_text("no article\n")
    with pytest.raises(SystemExit, match="train.txt: has 0 articles"):
        headings.main(str(tmp_path), str(tmp_path / "out"))
    for split in ("train", "valid"):
        (tmp_path / f"{split}.txt").write_text("".join(map(ARTICLE.format, "ABC")))
    headings.main(str(tmp_path), str(tmp_path / "out"))
    lines = (tmp_path / "out" / "dev.tsv").read_text().splitlines()
    assert len(lines) == 7 and lines[0] == "headings\tbody\tbelongs"
