"""Chinese pre-training recipe: symbols that keep words."""

import os
import random
import subprocess
import sys

import pytest
from conftest import SHARED
from support.chinese import WORDS
from support.recipes import COMMON, recipe_module, write

recipe_module("clue_pretraining", "bpe")  # which pieces imports later
pieces = recipe_module("clue_pretraining", "pieces")
recipe_module("clue_pretraining", "bpe")  # which pieces imports when it is needed
segmenter = recipe_module("clue_pretraining", "segmenter")
whole_words = recipe_module("clue_pretraining", "whole_words")


# --- words and symbols


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
def test_every_symbol_of_a_word_but_the_first_is_marked(word, symbols):
    assert pieces.marked(word, letters) == symbols.split()


def test_symbols_give_the_words_back():
    draw = random.Random(5)
    masking = whole_words.MarkedPieces(None)
    for _ in range(200):
        words = draw.choices([*WORDS, "3.5", "##", "x", "，", "A股", "don't"], k=draw.randint(1, 9))
        symbols = [symbol for word in words for symbol in pieces.marked(word, letters)]
        assert masking.decode(" ".join(symbols)) == " ".join(words)
        assert sum(map(masking.is_beginning_of_word, symbols)) == len(words)


def test_case_changes_after_the_segmentation(monkeypatch):
    seen = []
    cut = lambda line: seen.append(line) or ["T恤", " "]  # noqa: E731
    monkeypatch.setattr(pieces, "jieba_words", lambda: cut)
    assert pieces.word_writer(False, False)("T恤 ") == "t恤" and seen == ["T恤 "]
    assert pieces.word_writer(True, True)(" A股 \u3000 涨 ") == "A股 涨"


def test_word_pieces_are_learned_without_chinese_characters():
    assert pieces.latin_writer()("中国 t恤衫 iphone7 3.50 ， ok") == "iphone7 50 ok"


@pytest.mark.parametrize(
    "flags, expected",
    [([], "甲 一\n乙\n丙\n"), (["--blank-lines"], "甲 一 乙\n丙\n")],
)
def test_documents_of_both_layouts(tmp_path, flags, expected):
    source = write(tmp_path / "in", ["", "甲 一 ", "乙", "", " ", "丙", ""])
    pieces.main(["documents", *flags, source, str(tmp_path / "out")])
    assert (tmp_path / "out").read_text(encoding="utf-8") == expected


def test_a_text_without_text_is_one_line_and_leaves_nothing(tmp_path):
    source = write(tmp_path / "in", ["", " "])
    with pytest.raises(SystemExit, match="in: contains no text"):
        pieces.main(["documents", source, str(tmp_path / "out")])
    assert os.listdir(tmp_path) == ["in"]


def test_jieba_missing_is_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "jieba", None)
    with pytest.raises(SystemExit, match="pip install jieba"):
        segmenter.jieba_words()


def test_jieba_separates_words_and_leaves_no_file(tmp_path, monkeypatch):
    pytest.importorskip("jieba", reason="needs jieba")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert list(segmenter.jieba_words()("我来到北京清华大学")) == ["我", "来到", "北京", "清华大学"]
    assert os.listdir(tmp_path) == []


# --- real text


@pytest.mark.skipif(not (SHARED / "data" / "zh_web").exists(), reason="no real data here")
def test_real_web_text_keeps_every_character(tmp_path):
    cut = ["--segmented"]
    try:
        import jieba  # noqa: F401

        cut = []
    except ImportError:
        pass
    lines = (SHARED / "data" / "zh_web" / "CLUECorpusSmall_sampled.txt").read_text(encoding="utf-8")
    source = write(tmp_path / "in", lines.split("\n")[:100])
    pieces.main(["segment", *cut, source, str(tmp_path / "words")])
    pieces.main(["latin", str(tmp_path / "words"), str(tmp_path / "latin")])
    codes = str(tmp_path / "codes")
    subprocess.run(
        [
            sys.executable,
            str(COMMON / "bpe.py"),
            "learn",
            "--operations",
            "50",
            codes,
            str(tmp_path / "latin"),
        ],
        check=True,
        capture_output=True,
    )
    pieces.main(["split", codes, str(tmp_path / "words"), str(tmp_path / "symbols")])
    found = (tmp_path / "symbols").read_text(encoding="utf-8").split("\n")
    for line, symbols in zip(lines.split("\n")[:100], found):
        plain = "".join(s[2:] if len(s) > 2 and s[:2] == "##" else s for s in symbols.split())
        assert plain == "".join(line.lower().split())
