"""Splitting text into lines, words and subwords, and restoring it."""

import os
import random
import sys
from argparse import Namespace

import pytest
from fairseq.data import Dictionary
from fairseq.dataclass.configs import GenerationConfig
from support.conversion import learn_pieces
from support.recipes import error_of, recipe_module, write

from fairseq_posenc.serving.pack import check_subwords
from fairseq_posenc.serving.preparation import Preparation, Text, joiner_of, words_of
from fairseq_posenc.serving.subwords import BYTES, KINDS, SUBWORD_FILES, in_pieces
from fairseq_posenc.serving.translate import MAX_LENGTH, Beam, Hypothesis, translated

pytestmark = pytest.mark.formulas

WORDS = "中国 的 大学生 iphone ## 3.5% 中国人 我们 t恤衫 公园 散步 日本".split()


def can_be_listed(word):
    """Whether a word can be in the list of marked words."""
    return len(word) > 1 and not word.startswith("##") and word != "<unk>"


def test_every_piece_of_a_word_but_the_first_is_marked_and_marks_give_the_words_back():
    masking = recipe_module("clue_pretraining", "whole_words").MarkedPieces(None)
    expected = (
        "中 ##国 。 t ##恤 3 ##. ##5 ##% a ##b ##c # ### \U00020000 ##人 カ ##ナ ##一 d ##o ##' ##_"
    )
    line = "中国 。 t恤 3.5% abc ## \U00020000人 カナ一 do'_"
    # "@@ ".join replaces BPE: one piece per letter
    symbols = [symbol for word in line.split() for symbol in in_pieces(word, "@@ ".join)]
    assert symbols == expected.split()
    assert masking.decode(" ".join(symbols)) == line
    assert sum(map(masking.is_beginning_of_word, symbols)) == len(line.split())


LINE = "中国 的 大学生 iphone ## 3.5% 中国人 <unk> ##国 \U00020000人"


def test_every_text_comes_back_whatever_the_list(tmp_path):
    draw = random.Random(3)
    for size in (0, 3, 9):
        known = [word for word in draw.sample(LINE.split(), size) if can_be_listed(word)]
        split, join, *_ = KINDS["marked-words"](write(tmp_path / "words.txt", known))
        for _ in range(50):
            line = " ".join(draw.choices(LINE.split(), k=draw.randint(1, 12)))
            assert " ".join(split(line)).replace(" ##", "") == line
    assert join("我 们 iphone 大 ##学 ok".split()) == "我们iphone大学ok"
    split = KINDS["marked-words"](write(tmp_path / "words", ["中国", "iphone"])).split
    assert " ".join(split("中国 iphone 大学生 的 12")) == "中国 iphone 大 ##学 ##生 的 1 ##2"
    assert "none: cannot be read" in error_of(KINDS["marked-words"], str(tmp_path / "none"))
    wrong = write(tmp_path / "words.txt", ["中国", "国"])
    assert "words.txt: line 2: '国' is no word" in error_of(KINDS["marked-words"], wrong)


@pytest.mark.parametrize("kind, size", [("text8", 27), ("enwik8", 256)])
def test_every_byte_has_a_readable_symbol_of_its_own(kind, size, tmp_path):
    symbols = list(BYTES[kind].values())
    assert len(set(symbols)) == len(symbols) == size
    special = Dictionary()
    assert not any(symbol in special.indices or symbol.split() != [symbol] for symbol in symbols)
    # a dictionary with these symbols can be written and read
    for symbol in symbols:
        special.add_symbol(symbol)
    special.save(str(tmp_path / "dict.txt"))
    assert Dictionary.load(str(tmp_path / "dict.txt")).symbols == special.symbols
    split, join, *_ = KINDS[kind](None)
    assert split("a cat") == (["a", "_" if kind == "text8" else "<20>", *"cat"])
    assert split("é")[0] == ("Ã" if kind == "text8" else "<C3>")  # unknown to models of text8
    lines = ["a  line of words ", ""] + (["“a”\té 日本 _ <"] if kind == "enwik8" else [])
    assert [join(split(line)) for line in lines] == lines


def learned(kind, folder, lines):
    """Learn subwords of a *kind* from lines; returns their file."""
    path = folder / kind
    if kind == "sentencepiece":
        return str(learn_pieces(path, lines, vocab_size=60))
    if kind == "marked-words":
        words = {word for line in lines for word in line.split()}
        return write(path, sorted(filter(can_be_listed, words)))
    module = pytest.importorskip("subword_nmt.learn_bpe", reason="subwords are learned with it")
    with open(path, "w", encoding="utf-8") as codes:
        module.learn_bpe(lines, codes, 20)
    return str(path)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "transformers"])
def test_subwords_fit_the_dictionary_of_the_text_that_they_split(kind, tmp_path):
    draw, path = random.Random(2), None
    words = [f"{a}{b}" for a in ("walk", "talk", "sing") for b in ("", "s", "ing", "er")]
    words += WORDS if kind != "text8" else []
    lines = [" ".join(draw.choices(words, k=9)) for _ in range(90)]
    if SUBWORD_FILES[kind] is not None:
        path = learned(kind, tmp_path, lines)
    subwords = KINDS[kind](path)
    texts = [subwords.split(line) for line in lines]
    symbols = sorted({symbol for text in texts for symbol in text})
    check_subwords(kind, subwords, symbols, texts, "x")
    with pytest.raises(SystemExit, match="x: 100% of the dictionary's symbols are not among these"):
        check_subwords(kind, subwords, ["\u2581dog", "do@@", "##dog"], [], "x")


# --- words


@pytest.mark.parametrize(
    "nasty", ["a\rb", "a\u2028b", "a\x85b", "a\u00a0b", "a\x0cb", "a\tb", "a\u200bb", "  a  b "]
)
def test_a_sentence_stays_one_line_of_plain_words(nasty):
    assert words_of("moses", "de", True)(nasty) == ["a", "b"]


def test_punctuation_is_normalised_and_dashes_are_split_on_request():
    sentence = "“Ein gut-gemeinter E-Mail-Test” kostet 3,50 Euro."
    split, whole = words_of("moses", "de", True)(sentence), words_of("moses", "de")(sentence)
    assert split[:5] == ["&quot;", "Ein", "gut", "@-@", "gemeinter"] and "gut-gemeinter" in whole
    assert words_of("moses", "de", lowercase=True)(sentence) == [w.lower() for w in whole]


def test_joining_undoes_splitting():
    for sentence in ["Das ist gut, sagte er.", "Die 5-jährige Anna & ihr Hund!", 'Er sagt "ja".']:
        words = words_of("moses", "de", True)(sentence)
        assert joiner_of("moses", "de")(words) == sentence
    assert joiner_of("none", "de")(["a", "b"]) == "a b"


def test_jieba_missing_is_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "jieba", None)
    assert "pip install jieba" in error_of(words_of, "jieba", None)


def test_jieba_separates_words_and_leaves_no_file(tmp_path, monkeypatch):
    pytest.importorskip("jieba", reason="Chinese words are split with jieba")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert words_of("jieba", None)("我来到北京清华大学") == ["我", "来到", "北京", "清华大学"]
    assert os.listdir(tmp_path) == []


# --- text


CODES = "#version: 0.2\nt h\nth e</w>\nl o\nlo n\nlon g\n2 0\n"


def prepared(folder, **text):
    """A text preparation with a subword file ``codes``, which is written to *folder*."""
    (folder / "codes").write_text(CODES)
    return Preparation(Text(subword_file="codes", **text), str(folder))


@pytest.mark.parametrize("lowercase", [False, True])
def test_english_comes_back(tmp_path, lowercase):
    words = {"source_lang": "en", "tokenizer": "moses", "lowercase": lowercase}
    text = prepared(tmp_path, subwords="subword-nmt", **words)
    assert text.restore(text.source("It isn't long.")).lower() == "it isn't long."
    assert any(token.isupper() for token in text.source("LONG")) != lowercase


@pytest.mark.parametrize("tokenizer", ["jieba", "none"])
def test_chinese_comes_back(tmp_path, tokenizer):
    if tokenizer == "jieba":
        pytest.importorskip("jieba", reason="Chinese words are split with jieba")
    text = prepared(tmp_path, tokenizer=tokenizer, subwords="marked-pieces")
    assert text.restore(text.source("在公园 long the 散步。")) == "在公园long the散步。"


# --- lines


class Reverse:
    """An engine that returns n versions of the reversed tokens."""

    def __init__(self, longest=40):
        self.calls, self.longest = [], {"source": 6, "target": longest}

    def translate(self, sources, prefixes, beam):
        assert all(sources)
        self.calls.append((len(sources), beam.max_length))
        return [
            [Hypothesis([*p, *s[::-1], *["!"] * n], -float(n)) for n in range(beam.n_best)]
            for s, p in zip(sources, prefixes)
        ]


def lines_of(lines, engine, beam, buffer=10, **flags):
    args = Namespace(buffer=buffer, **{"scores": False, "prefix": False, **flags})
    return translated(lines, Preparation(Text()), engine, beam, args)


@pytest.mark.parametrize("buffer", [1, 2, 100])
def test_every_line_keeps_its_place(buffer, capsys):
    engine, lines = Reverse(), ["a b", "", "c", "a b c d e f", " ", "d e f"]
    got = list(lines_of(lines, engine, Beam(4, 1.0, 1, 100, 4000), buffer))
    assert got == ["b a", "", "c", "", "", "f e d"]
    assert capsys.readouterr().err.startswith("line 4: the line has 6 tokens")
    assert max(length for _, length in engine.calls) == 39  # the target's limit without </s>
    assert len(engine.calls) == {1: 3, 2: 3, 100: 1}[buffer]


def test_the_limit_does_not_depend_on_the_neighbours():
    """A short line has the same limit for its translation, alone or beside longer lines."""
    assert GenerationConfig().max_len_b == MAX_LENGTH
    engine = Reverse(longest=1000)
    for lines in (["a"], ["a", "a b c d e"]):
        list(lines_of(lines, engine, Beam(4, 1.0, 1, MAX_LENGTH, 4000)))
    assert {length for _, length in engine.calls} == {MAX_LENGTH}


def test_n_best_scores_and_prefixes(capsys):
    beam, flags = Beam(4, 1.0, 2, 100, 4000), {"scores": True, "prefix": True}
    assert list(lines_of(["a b\tx", "", "c"], Reverse(), beam, **flags)) == [
        *("1\t-0.0000\tx b a", "1\t-1.0000\tx b a !"),
        *("2\t0.0000\t", "2\t0.0000\t"),
        *("3\t-0.0000\tc", "3\t-1.0000\tc !"),
    ]


def test_lines_stream():
    """A line is translated before the next line is read."""
    source = iter(["a", "b"])
    assert next(lines_of(source, Reverse(), Beam(1, 1.0, 1, 9, 99), buffer=1)) == "a"
    assert list(source) == ["b"]
