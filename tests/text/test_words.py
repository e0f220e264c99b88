"""Words of Moses and jieba, and the commands that start without PyTorch and fairseq."""

import os
import subprocess
import sys

import pytest
from support.commands import programs
from support.recipes import error_of, write

from fairseq_posenc.cli import main
from fairseq_posenc.serving.words import joiner_of, words_of
from fairseq_posenc.text import parallel


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


def test_tokenizing_keeps_order_and_count_for_any_number_of_workers(tmp_path, monkeypatch):
    monkeypatch.setattr(parallel, "CHUNK", 3)
    source = write(tmp_path / "in", [f"Satz {i},\rdann-mehr." if i % 7 else "" for i in range(60)])
    for workers in ("1", "2"):
        flags = ["--lang", "de", "--workers", workers]
        main(["tokenize", "moses", *flags, source, str(tmp_path / workers)])
    one, two = ((tmp_path / name).read_text(encoding="utf-8") for name in "12")
    assert one == two
    lines = one.split("\n")[:-1]
    assert [line.split()[1] if line else None for line in lines] == [
        str(i) if i % 7 else None for i in range(60)
    ]
    main(["detokenize", "--lang", "de", str(tmp_path / "1"), str(tmp_path / "text")])
    assert (tmp_path / "text").read_text().split("\n")[1] == "Satz 1, dann-mehr."


@pytest.mark.parametrize("workers", ["1", "2"])
def test_broken_input_is_one_line_and_leaves_nothing(tmp_path, workers):
    (tmp_path / "bad").write_bytes(b"gut\n\xff\xfe\n")
    flags = ["tokenize", "moses", "--lang", "de", "--workers", workers]
    output = str(tmp_path / "out")
    assert "UTF-8" in error_of(main, [*flags, str(tmp_path / "bad"), output])
    assert "nowhere" in error_of(main, [*flags, "nowhere", output])
    assert os.listdir(tmp_path) == ["bad"]


@pytest.mark.parametrize(
    "words, message",
    [
        (["moses", "in", "out"], "give --lang"),
        (["none", "--lang", "de", "in", "out"], "--lang: has no effect on none"),
        (["jieba", "--dash-splits", "in", "out"], "--dash-splits: has no effect on jieba"),
        (["none", "--dictionary", "d"], "--dictionary: none has no symbols"),
        (["model", "--lowercase", "in", "out"], "the tokenizer in model says so itself"),
        (["none", "--workers", "0", "in", "out"], "--workers 0: expected"),
        (["none"], "INPUT OUTPUT"),
    ],
)
def test_mistakes_are_one_line(words, message):
    assert message in error_of(main, ["tokenize", *words])


@pytest.fixture
def without_torch(tmp_path):
    """Run ``fairseq-posenc`` where PyTorch and fairseq cannot be imported."""
    for name in ("torch", "fairseq"):
        (tmp_path / f"{name}.py").write_text(f"raise ImportError('{name} was imported')\n")
    path = os.pathsep.join([str(tmp_path), *sys.path])

    def run(*words):
        program = os.path.join(programs(), "fairseq-posenc")
        return subprocess.run(
            [program, *map(str, words)],
            cwd=tmp_path,
            input="don't stop\n",
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
        )

    return run


def test_text_commands_start_without_pytorch_and_fairseq(tmp_path, without_torch):
    write(tmp_path / "codes", ["#version: 0.2", "s t", "st o"])
    for words, expected in (
        (["tokenize", "moses", "--lang", "en", "-", "-"], "don &apos;t stop\n"),
        (["tokenize", "none", "-", "-"], "don't stop\n"),
        (["apply-subwords", "subword-nmt", "codes", "-", "-"], "d@@ o@@ n@@ '@@ t sto@@ p\n"),
    ):
        done = without_torch(*words)
        assert (done.returncode, done.stdout, done.stderr) == (0, expected, "")
    write(tmp_path / "text", ["a b", "a c"])
    for words in (
        ["learn-subwords", "marked-words", "words", "text", "--vocabulary-size", "9"],
        ["clean", "text", "text", "one", "two"],
        ["check-pairs", "text", "text"],
        ["check-plain", "text"],
        ["documents", "text", "documents"],
        ["fold", "text", "lines"],
    ):
        done = without_torch(*words)
        assert done.returncode == 0, done.stderr


def test_scripts_are_run_without_fairseq_as_python_runs_them(tmp_path, without_torch):
    (tmp_path / "folder").mkdir()
    write(tmp_path / "folder" / "beside.py", ["VALUE = 5"])
    script = ["import sys, beside", "from fairseq_posenc.basics.lines import read_lines"]
    script += ["print(__name__, sys.argv[1:], beside.VALUE)"]
    write(tmp_path / "folder" / "script.py", script)
    done = without_torch("script", "folder/script.py", "--flag", "a b")
    assert done.stdout == "__main__ ['--flag', 'a b'] 5\n", done.stderr
    assert "script none.py: no such file" in without_torch("script", "none.py").stderr
