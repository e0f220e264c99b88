"""Pre-training recipe: documents, and lines that are too long."""

import os
import random

import pytest
from conftest import SHARED
from support.recipes import recipe_module, write

documents = recipe_module("bert_pretraining", "documents")
fold = recipe_module("bert_pretraining", "fold")


# --- documents


def test_blank_lines_separate_documents():
    lines = ["", "a", " b ", "", "\t", "c", "", ""]
    assert list(documents.by_blank_lines(lines)) == [["a", "b"], ["c"]]
    assert list(documents.by_blank_lines(["", " "])) == []


def test_first_level_headings_start_documents_of_wikitext():
    text = """

 = One <unk> =

 A role @-@ playing game , 3 @.@ 5 of 1 @,@ 000 .

 = = Below = =

 x = y .
 = Two =
 = = = Far below = = =
 = = = "= Not a title" = = =
 End ."""
    assert list(documents.by_headings(text.split("\n"))) == [
        ["One unk", "A role-playing game , 3.5 of 1,000 .", "Below", "x = y ."],
        ["Two", "Far below", '"= Not a title"', "End ."],
    ]


@pytest.mark.parametrize("flags, expected", [([], "a\nb\n\nc\n"), (["--keep-case"], "A\nb\n\nC\n")])
def test_case_and_one_blank_line_between_documents(tmp_path, flags, expected):
    source = write(tmp_path / "in", ["A", "b", "", "", "C", ""])
    documents.main([*flags, source, str(tmp_path / "out")])
    assert (tmp_path / "out").read_text() == expected


def test_a_text_without_text_is_one_line_and_leaves_nothing(tmp_path):
    source = write(tmp_path / "in", ["", " "])
    with pytest.raises(SystemExit, match="in: contains no text"):
        documents.main([source, str(tmp_path / "out")])
    assert os.listdir(tmp_path) == ["in"]


@pytest.mark.skipif(not (SHARED / "data" / "wikitext2").exists(), reason="no real data here")
def test_real_wikitext_has_its_articles():
    with open(SHARED / "data" / "wikitext2" / "valid.txt", encoding="utf-8") as stream:
        found = list(documents.by_headings(stream))
    assert len(found) == 60  # what the corpus is published with
    assert found[0][0] == "Homarus gammarus" and not any("@-@" in " ".join(d) for d in found)


# --- long lines


def test_folded_lines_are_short_and_whole():
    draw = random.Random(4)
    for _ in range(300):
        tokens = draw.choices(["a", "b@@", ".", "&quot;", ")"], k=draw.randint(0, 60))
        limit = draw.randint(1, 12)
        found = fold.pieces(tokens, limit)
        assert sum(found, []) == tokens
        assert all(0 < len(piece) <= limit for piece in found) or found == [[]]
        assert len(tokens) > limit or len(found) == 1


@pytest.mark.parametrize(
    "line, expected",
    [
        ("a b . c d . e f", ["a b . c d .", "e f"]),
        ("a b . &quot; c d e", ["a b . &quot;", "c d e"]),
        ("a b . ) &quot; c d e f", ["a b . ) &quot;", "c d e f"]),
        ("a b c d e f@@ g h", ["a b c d e", "f@@ g h"]),
        ("a@@ b@@ c@@ d@@ e@@ f@@ g", ["a@@ b@@ c@@ d@@ e@@ f@@", "g"]),
        ("a b c d e f ##g h", ["a b c d e", "f ##g h"]),
        ("a ##b ##c ##d ##e ##f ##g", ["a ##b ##c ##d ##e ##f", "##g"]),
        ("a b . c d .", ["a b . c d ."]),
        ("", [""]),
    ],
)
def test_lines_break_after_sentences_then_between_words(line, expected):
    assert fold.folder(6)(line).split("\n") == expected


def test_words_may_be_marked_where_they_begin():
    cut = fold.folder(6, "Ġ")
    assert cut("a Ġb Ġ. Ġc Ġd . Ġe f").split("\n") == ["a Ġb Ġ. Ġc Ġd .", "Ġe f"]
    assert cut("a Ġb Ġc Ġd Ġe f g Ġh").split("\n") == ["a Ġb Ġc Ġd", "Ġe f g Ġh"]
