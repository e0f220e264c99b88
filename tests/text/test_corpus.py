"""Documents, lines that are not too long, and pairs of lines."""

import json
import os
import random

import pytest
from conftest import SHARED
from support.recipes import error_of, write

from fairseq_posenc.cli import main
from fairseq_posenc.text import corpus


def lines_of(path):
    with open(path, encoding="utf-8", newline="\n") as stream:
        return stream.read().split("\n")[:-1]


def test_blank_lines_separate_documents():
    lines = ["", "a", " b ", "", "\t", "c", "", ""]
    assert list(corpus.by_blank_lines(lines)) == [["a", "b"], ["c"]]
    assert list(corpus.by_blank_lines(["", " "])) == []


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
    assert list(corpus.by_headings(text.split("\n"))) == [
        ["One unk", "A role-playing game , 3.5 of 1,000 .", "Below", "x = y ."],
        ["Two", "Far below", '"= Not a title"', "End ."],
    ]


@pytest.mark.parametrize(
    "flags, expected",
    [
        ([], "A\nb\n\nC\n"),
        (["--lowercase"], "a\nb\n\nc\n"),
        (["--one-line"], "A b\nC\n"),
        (["--one-line", "--format", "lines"], "A\nb\nC\n"),
        (["--format", "running"], "A\n b\n\nC\n"),
    ],
)
def test_the_forms_of_documents(tmp_path, flags, expected):
    source = write(tmp_path / "in", ["", "A ", " b", "", " ", "C", ""])
    main(["documents", *flags, source, str(tmp_path / "out")])
    assert (tmp_path / "out").read_text() == expected


def test_a_text_without_text_is_one_line_and_leaves_nothing(tmp_path):
    source = write(tmp_path / "in", ["", " "])
    assert "in: contains no text" in error_of(main, ["documents", source, str(tmp_path / "out")])
    assert os.listdir(tmp_path) == ["in"]


@pytest.mark.skipif(not (SHARED / "data" / "wikitext2").exists(), reason="no real data here")
def test_real_wikitext_has_its_articles():
    with open(SHARED / "data" / "wikitext2" / "valid.txt", encoding="utf-8") as stream:
        found = list(corpus.by_headings(stream))
    assert len(found) == 60  # what the corpus is published with
    assert found[0][0] == "Homarus gammarus" and not any("@-@" in " ".join(d) for d in found)


def test_documents_of_both_formats_are_the_same_lines(tmp_path):
    (tmp_path / "a.txt").write_text("\n\none \ntwo\n\n\n  three\n")
    texts = ["one \n\ntwo\n", " ", "  three"]
    lines = [json.dumps({"text": text, "meta": {}}) + "\n" for text in texts]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    for name in ("a.txt", "a.jsonl"):
        main(["documents", "--format", "running", str(tmp_path / name), str(tmp_path / "out")])
        assert (tmp_path / "out").read_text() == "one\ntwo\n\n  three\n"


@pytest.mark.parametrize(
    "line, message",
    [
        ("{", "is not JSON"),
        ('{"body": ""}', "has no text"),
        ('{"text": 1}', "text is 1; expected a text"),
    ],
)
def test_a_wrong_document_is_one_line_with_its_number(line, message, tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n' + line + "\n")
    arguments = ["--format", "running", str(tmp_path / "a.jsonl"), str(tmp_path / "out")]
    found = error_of(main, ["documents", *arguments])
    assert "a.jsonl: line 2: " in found and message in found
    assert os.listdir(tmp_path) == ["a.jsonl"]


def test_folded_lines_are_short_and_whole():
    draw = random.Random(4)
    for _ in range(300):
        tokens = draw.choices(["a", "b@@", ".", "&quot;", ")"], k=draw.randint(0, 60))
        limit = draw.randint(1, 12)
        found = corpus.fold(tokens, limit)
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
    assert corpus.folder(6)([line]) == ["\n".join(expected)]


def test_words_may_be_marked_where_they_begin():
    lines = ["a Ġb Ġ. Ġc Ġd . Ġe f", "a Ġb Ġc Ġd Ġe f g Ġh"]
    assert corpus.folder(6, "Ġ")(lines) == ["a Ġb Ġ. Ġc Ġd .\nĠe f", "a Ġb Ġc Ġd\nĠe f g Ġh"]


@pytest.mark.parametrize(
    "source, target, expected",
    [(0, 3, "short"), (3, 0, "short"), (1, 1, "kept"), (250, 250, "kept"), (251, 250, "long")]
    + [(250, 251, "long"), (10, 15, "kept"), (15, 10, "kept"), (10, 16, "ratio"), (3, 2, "kept")],
)
def test_cleaning_keeps_pairs_up_to_the_limits(source, target, expected):
    assert corpus.verdict("x " * source, "y " * target, 1, 250, 1.5) == expected


def test_cleaning_keeps_the_sides_aligned(tmp_path):
    rng = random.Random(1)
    lengths = [(rng.randint(0, 12), rng.randint(0, 12)) for _ in range(200)]
    source = write(tmp_path / "s", [" ".join([str(i)] * a) for i, (a, _) in enumerate(lengths)])
    target = write(tmp_path / "t", [" ".join([str(i)] * b) for i, (_, b) in enumerate(lengths)])
    outputs = [str(tmp_path / "s2"), str(tmp_path / "t2")]
    main(["clean", "--max-length", "10", "--ratio", "2", source, target, *outputs])
    kept = [[line.split()[0] for line in lines_of(path)] for path in outputs]
    assert kept[0] == kept[1]
    assert kept[0] == [
        str(i)
        for i, (a, b) in enumerate(lengths)
        if 1 <= a <= 10 and 1 <= b <= 10 and a <= 2 * b and b <= 2 * a
    ]


def test_unequal_texts_are_refused_and_nothing_is_written(tmp_path):
    source, target = write(tmp_path / "s", ["a", "b"]), write(tmp_path / "t", ["a"])
    outputs = [str(tmp_path / "s2"), str(tmp_path / "t2")]
    assert "different numbers of lines" in error_of(main, ["clean", source, target, *outputs])
    assert "--ratio 0.5" in error_of(main, ["clean", "--ratio", "0.5", source, source, *outputs])
    same = [outputs[0], f"{tmp_path}/./s2"]
    assert "s2: is given twice" in error_of(main, ["clean", source, source, *same])
    empty = write(tmp_path / "e", ["", ""])
    assert "none of 2 pairs" in error_of(main, ["clean", empty, empty, *outputs])
    assert sorted(os.listdir(tmp_path)) == ["e", "s", "t"]


def test_pairs_are_copied_or_refused(tmp_path):
    two, long = write(tmp_path / "two", ["a", "b c"]), write(tmp_path / "long", ["a", "b " * 9])
    copies = [str(tmp_path / "one"), str(tmp_path / "other")]
    main(["check-pairs", two, long, *copies])
    assert [lines_of(path) for path in copies] == [["a", "b c"], ["a", "b " * 9]]
    assert "long: line 2: 9 tokens" in error_of(main, ["check-pairs", "--longest", "8", two, long])
    empty = write(tmp_path / "empty", [])
    assert "are empty" in error_of(main, ["check-pairs", empty, empty])
