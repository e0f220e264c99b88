"""Samples of documents: sentences after their context, what fits, and texts that are refused."""

import pytest

from fairseq_posenc import cli
from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.text.documents import (
    SEPARATOR,
    Context,
    Pair,
    contexts_of,
    in_pieces,
    joined,
    parted,
    with_context,
)

ENGLISH = ["a b", "c", "d e f", "", "g", "h i", "", ""]
GERMAN = ["A", "C D", "D", "", "G H", "I", "", ""]


@pytest.fixture
def make(tmp_path, capsys):
    def run(*flags, source=ENGLISH, target=GERMAN):
        paths = [tmp_path / name for name in ("in.en", "in.de", "out.en", "out.de")]
        for path, lines in zip(paths, (source, target)):
            path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
        cli.main(["add-context", *flags, *map(str, paths)])
        said = capsys.readouterr().err
        return [path.read_text(encoding="utf-8").splitlines() for path in paths[2:]], said

    return run


def test_samples_have_the_sentences_before_on_the_sides_that_are_asked_for(make):
    (source, target), said = make("--context", "1")
    assert source == ["a b", "a b <brk> c", "c <brk> d e f", "g", "g <brk> h i"]
    assert target == ["A", "A <brk> C D", "C D <brk> D", "G H", "G H <brk> I"]
    assert "2 documents, 5 sentences, 5 samples; 0 sentences of context" in said
    for sides, changed in (("source", 0), ("target", 1)):
        both, _ = make("--context", "1", "--context-sides", sides)
        alone, _ = make("--context", "0")
        assert both[changed] == (source, target)[changed]
        assert both[1 - changed] == alone[1 - changed]


def test_several_contexts_and_whole_documents(make):
    both, _ = make("--context", "0,whole")
    assert both[0] == ["a b", "c", "d e f", "a b <brk> c <brk> d e f", "g", "h i", "g <brk> h i"]
    assert both[1][3::3] == ["A <brk> C D <brk> D", "G H <brk> I"]


def test_what_does_not_fit_is_cut_from_the_left_on_both_sides_and_counted(make):
    (source, target), said = make("--context", "2", "--longest", "6")
    assert source[2] == "c <brk> d e f" and target[2] == "C D <brk> D"
    assert "1 sentences of context did not fit in 6 tokens, and 0 sentences were left out" in said
    (source, _), said = make("--context", "2", "--longest", "2")
    assert source == ["a b", "c", "g", "h i"]  # as long as 3, one sentence is in no sample
    assert "2 sentences of context did not fit in 2 tokens, and 1 sentences were left out" in said


@pytest.mark.parametrize("longest", range(3, 12))
def test_pieces_are_as_long_as_they_can_be(longest):
    document = [Pair(a.split(), b.split()) for a, b in zip(ENGLISH[:3], GERMAN[:3])]
    pieces = list(in_pieces(document, longest))
    assert [pair for piece in pieces for pair in piece] == document
    sizes = [max(len(joined(side)) for side in zip(*piece)) for piece in pieces]
    assert max(sizes) <= longest
    for piece, following in zip(pieces, pieces[1:]):
        assert max(len(joined(side)) for side in zip(*piece, following[0])) > longest


def test_context_is_cut_where_either_side_is_full():
    before = [Pair(["a"], ["x"] * 5), Pair(["b"], ["y"])]
    for rooms, dropped in (((9, 9), 0), ((9, 8), 1), ((4, 9), 1), ((2, 9), 2)):
        sample = with_context(before, Pair(["c"], ["z"]), Context(None), rooms)
        assert sample.dropped == dropped
        for tokens, room in zip(sample, rooms):
            assert len(tokens) <= room
    sample = with_context(before, Pair(["c"], []), Context(1), (9, 9))
    assert sample.source == ["b", SEPARATOR, "c"] and sample.target == ["y", SEPARATOR]


def test_parted_takes_joined_back():
    sentences = [["a"], ["b", "c"], []]
    assert parted(joined(sentences)) == sentences


@pytest.mark.parametrize(
    "change, message",
    [
        ({"target": ["A", "", "D", "", "G", "I", "", ""]}, "line 2 is blank in .*in.de alone"),
        ({"source": ENGLISH[:3], "target": GERMAN[:3]}, "has no blank line, which ends a document"),
        ({"source": ["a <brk>", "", "b"], "target": ["A", "", "B"]}, "has the symbol <brk>"),
        ({"source": ["", ""], "target": ["", ""]}, "has no sentence of at most 1022 tokens"),
        ({"source": ENGLISH[:3]}, "different numbers of lines: 3 and 8"),
    ],
)
def test_texts_that_are_no_documents(make, change, message, tmp_path):
    with pytest.raises(UsageError, match=message):
        make("--context", "1", **change)
    assert not (tmp_path / "out.en").exists()


@pytest.mark.parametrize(
    "flags, message",
    [
        (["--context", "1,x"], "--context 1,x: 'x' is neither a number of sentences nor whole"),
        (["--context", "-1"], "--context -1: '-1' is neither"),
        (["--context", "whole", "--context-sides", "source"], "drop --context-sides source"),
    ],
)
def test_contexts_that_are_none(make, flags, message):
    with pytest.raises(UsageError, match=message):
        make(*flags)


def test_contexts_of():
    assert contexts_of("0,3,whole") == [0, 3, None]
