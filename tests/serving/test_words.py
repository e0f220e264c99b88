"""Words of Moses and jieba."""

import os
import sys

import pytest
from support.recipes import error_of

from fairseq_posenc.serving.words import joiner_of, words_of

pytestmark = pytest.mark.formulas


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


def test_case_changes_after_jieba_has_split(monkeypatch):
    from fairseq_posenc.serving import words

    seen = []
    monkeypatch.setattr(
        words, "_jieba_words", lambda: lambda line: seen.append(line) or ["T恤", "A股"]
    )
    assert words_of("jieba", None, lowercase=True)("T恤 A股") == ["t恤", "a股"]
    assert words_of("jieba", None)("T恤 A股") == ["T恤", "A股"] and seen == ["T恤 A股"] * 2


def test_jieba_missing_is_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "jieba", None)
    assert "pip install jieba" in error_of(words_of, "jieba", None)


def test_jieba_separates_words_and_leaves_no_file(tmp_path, monkeypatch):
    pytest.importorskip("jieba", reason="an extra: words of Chinese text")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert words_of("jieba", None)("我来到北京清华大学") == ["我", "来到", "北京", "清华大学"]
    assert os.listdir(tmp_path) == []
