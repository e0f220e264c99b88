"""Kinds of subwords: what they split comes back."""

import random

import pytest
from conftest import SHARED
from fairseq.data import Dictionary
from support.pretraining import WORDS
from support.recipes import error_of, recipe_module, write

from fairseq_posenc.basics.lines import read_lines
from fairseq_posenc.cli import main
from fairseq_posenc.exchange.subword_check import check_subwords
from fairseq_posenc.serving.preparation import Preparation, Text
from fairseq_posenc.serving.subwords import (
    BYTES,
    KINDS,
    SUBWORD_FILES,
    can_be_symbol,
    in_pieces,
)


def letters(word):
    """A stand-in for BPE: one piece a letter."""
    return "@@ ".join(word)


@pytest.mark.parametrize(
    "word, symbols",
    [
        ("中国", "中 ##国"),
        ("。", "。"),
        ("t恤", "t ##恤"),
        ("3.5%", "3 ##. ##5 ##%"),
        ("abc", "a ##b ##c"),
        ("##", "# ###"),
        ("\U00020000人", "\U00020000 ##人"),
        ("カナ一", "カ ##ナ ##一"),
        ("don't_x", "d ##o ##n ##' ##t ##_ ##x"),
    ],
)
def test_every_piece_of_a_word_but_the_first_is_marked(word, symbols):
    assert in_pieces(word, letters) == symbols.split()


def test_marks_give_the_words_back():
    draw = random.Random(5)
    masking = recipe_module("clue_pretraining", "whole_words").MarkedPieces(None)
    for _ in range(200):
        words = draw.choices([*WORDS, "3.5", "##", "x", "，", "A股", "don't"], k=draw.randint(1, 9))
        symbols = [symbol for word in words for symbol in in_pieces(word, letters)]
        assert masking.decode(" ".join(symbols)) == " ".join(words)
        assert sum(map(masking.is_beginning_of_word, symbols)) == len(words)


LINE = "中国 的 大学生 iphone ## 3.5% 中国人 <unk> ##国 \U00020000人"


def test_a_word_outside_the_list_is_its_characters(tmp_path):
    split = KINDS["marked-words"](write(tmp_path / "words", ["中国", "iphone"])).split
    assert " ".join(split("中国 iphone 大学生 的 12")) == "中国 iphone 大 ##学 ##生 的 1 ##2"


def test_every_text_comes_back_whatever_the_list(tmp_path):
    draw = random.Random(3)
    for size in (0, 3, 9):
        known = [word for word in draw.sample(LINE.split(), size) if can_be_symbol(word)]
        split, join, *_ = KINDS["marked-words"](write(tmp_path / "words.txt", known))
        for _ in range(50):
            line = " ".join(draw.choices(LINE.split(), k=draw.randint(1, 12)))
            assert " ".join(split(line)).replace(" ##", "") == line
    assert join("我 们 iphone 大 ##学 ok".split()) == "我们iphone大学ok"
    assert "none: cannot be read" in error_of(KINDS["marked-words"], str(tmp_path / "none"))
    wrong = write(tmp_path / "words.txt", ["中国", "国"])
    assert "words.txt: line 2: '国' is no word" in error_of(KINDS["marked-words"], wrong)


@pytest.mark.skipif(not (SHARED / "data" / "zh_web").exists(), reason="no real data here")
def test_real_web_text_keeps_every_character(tmp_path):
    lines = (SHARED / "data" / "zh_web" / "CLUECorpusSmall_sampled.txt").read_text(encoding="utf-8")
    source = write(tmp_path / "in", lines.split("\n")[:100])
    words, codes = str(tmp_path / "words"), str(tmp_path / "codes")
    main(["tokenize", "none", "--lowercase", source, words])
    main(["learn-subwords", "marked-pieces", "--operations", "50", codes, words])
    main(["apply-subwords", "marked-pieces", codes, words, str(tmp_path / "symbols")])
    for line, symbols in zip(lines.split("\n")[:100], read_lines(tmp_path / "symbols")):
        plain = "".join(s[2:] if len(s) > 2 and s[:2] == "##" else s for s in symbols.split())
        assert plain == "".join(line.lower().split())


@pytest.mark.parametrize("kind, size", [("text8", 27), ("enwik8", 256)])
def test_every_byte_has_a_symbol_of_its_own(kind, size, tmp_path):
    symbols = list(BYTES[kind].values())
    assert len(set(symbols)) == len(symbols) == size
    special = Dictionary()
    assert not any(symbol in special.indices or symbol.split() != [symbol] for symbol in symbols)
    # a dictionary with them can be written and read
    for symbol in symbols:
        special.add_symbol(symbol)
    special.save(str(tmp_path / "dict.txt"))
    assert Dictionary.load(str(tmp_path / "dict.txt")).symbols == special.symbols


@pytest.mark.parametrize("kind", ["text8", "enwik8"])
def test_symbols_of_bytes_are_readable_and_give_the_text_back(kind, tmp_path):
    split, join, *_ = KINDS[kind](None)
    assert split("a cat") == (["a", "_" if kind == "text8" else "<20>", *"cat"])
    assert split("é")[0] == ("Ã" if kind == "text8" else "<C3>")  # unknown to a model of text8
    lines = ["a  line of words ", ""] + (["“a”\té 日本 _ <"] if kind == "enwik8" else [])
    paths = [write(tmp_path / "in", lines), str(tmp_path / "symbols"), str(tmp_path / "out")]
    main(["apply-subwords", kind, *paths[:2]])
    main(["join-subwords", kind, *paths[1:]])
    assert [join(split(line)) for line in lines] == lines == list(read_lines(paths[2]))


def test_every_kind_says_whether_it_has_a_file():
    assert sorted(KINDS) == sorted(SUBWORD_FILES)


LEARNED = {
    "subword-nmt": ["--operations", "20"],
    "sentencepiece": ["--vocabulary-size", "60"],
    "marked-pieces": ["--operations", "20"],
    "marked-words": ["--vocabulary-size", "60"],
}


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "transformers"])
def test_subwords_fit_the_dictionary_of_the_text_that_they_split(kind, tmp_path):
    draw, path = random.Random(2), None
    words = [f"{a}{b}" for a in ("walk", "talk", "sing") for b in ("", "s", "ing", "er")]
    words += WORDS if kind != "text8" else []
    lines = [" ".join(draw.choices(words, k=9)) for _ in range(90)]
    if kind in LEARNED:
        if kind == "sentencepiece":
            pytest.importorskip("sentencepiece", reason="learns the subwords")
        path = str(tmp_path / kind)
        main(["learn-subwords", kind, *LEARNED[kind], path, write(tmp_path / "in", lines)])
    subwords = KINDS[kind](path)
    texts = [subwords.split(line) for line in lines]
    symbols = sorted({symbol for text in texts for symbol in text})
    check_subwords(kind, subwords, symbols, texts, "x")
    with pytest.raises(SystemExit, match="x: 100% of the dictionary's symbols are not among them"):
        check_subwords(kind, subwords, ["\u2581dog", "do@@", "##dog"], [], "x")


def test_one_command_splits_as_two_do(tmp_path):
    source = write(tmp_path / "in", ["“Well-known” – it’s 5 € & THE <b>!", "", "don't   stop…"] * 3)
    words, codes, one, two = (str(tmp_path / name) for name in ("words", "codes", "one", "two"))
    flags = ["--dash-splits", "--lowercase"]
    main(["tokenize", "moses", "--lang", "de", *flags, source, words])
    main(["learn-subwords", "subword-nmt", "--operations", "9", codes, words])
    main(["apply-subwords", "subword-nmt", codes, words, one])
    raw = ["--tokenizer", "moses", "--source-lang", "de", *flags]
    main(["apply-subwords", "subword-nmt", codes, *raw, source, two])
    text = Text("de", "de", "moses", True, "subword-nmt", "codes", True)
    served = Preparation(text, str(tmp_path)).source
    assert list(read_lines(one)) == list(read_lines(two))
    assert list(read_lines(one)) == [" ".join(served(line)) for line in read_lines(source)]


@pytest.mark.parametrize(
    "words, message",
    [
        (["text8", "--lowercase", "in", "out"], "takes the text as it is"),
        (["none", "--dash-splits", "in", "out"], "no effect without --tokenizer moses"),
        (["bpe", "codes", "in", "out"], "bpe: unknown"),
        (["marked-words", "words", "in"], "INPUT OUTPUT|cannot be read|has no output"),
    ],
)
def test_mistakes_are_one_line(words, message):
    assert any(m in error_of(main, ["apply-subwords", *words]) for m in message.split("|"))
