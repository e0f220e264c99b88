"""Reading lines and JSON, and progress bars, which only terminals show."""

import io
import pickle
import signal
import subprocess
import sys

import pytest
from support.commands import ROOT

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.lines import (
    bar,
    decoded,
    json_text,
    read_json_object,
    read_lines,
    say_on_terminal,
)

pytestmark = pytest.mark.refusals

CONTENT = b"\xef\xbb\xbfein Haus\r\n\xef\xbb\xbfzwei\rdrei\nohne\x0b\xe2\x80\xa8\xc2\x85 Ende"
LINES = ["ein Haus", "\ufeffzwei\rdrei", "ohne\x0b\u2028\x85 Ende"]


def refuses(function, *arguments):
    """The one-line message of the UsageError that *function* raises."""
    with pytest.raises(UsageError) as caught:
        function(*arguments)
    assert "\n" not in str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    return str(caught.value)


def test_only_line_feeds_end_lines_and_a_byte_order_mark_is_no_text(tmp_path):
    (tmp_path / "text").write_bytes(CONTENT)
    assert list(read_lines(tmp_path / "text")) == LINES
    assert list(decoded(io.BytesIO(CONTENT), "standard input")) == LINES


def test_text_that_is_not_utf8_is_named_with_its_line(tmp_path):
    bad = tmp_path / "bad"
    bad.write_bytes(b"gut\nschlecht \xff\n")
    assert "bad: line 2: not UTF-8 (byte 10" in refuses(list, read_lines(bad))
    assert "nowhere: cannot be read (No such file" in refuses(list, read_lines("nowhere"))


def test_half_of_a_character_in_json_is_named_with_what_stands_before(tmp_path):
    path = tmp_path / "text.json"
    path.write_text('{"text": "so \\uD83D."}')
    words = """is not JSON (unpaired surrogate '\\ud83d' after '{"text": "so ')"""
    assert words in refuses(read_json_object, str(path), str(path))
    path.write_text(json_text({"a": "\U0001f600 \\ud83d"}))
    assert read_json_object(str(path), str(path)) == {"a": "\U0001f600 \\ud83d"}


def test_a_bar_counts_on_a_terminal(monkeypatch):
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", terminal)
    assert list(bar("averaging", "abc", unit=" files")) == ["a", "b", "c"]
    say_on_terminal("converting")
    said = terminal.getvalue()
    assert "averaging:   0%" in said and "3/3" in said and said.endswith("converting\n")


def test_a_log_has_no_bar(capsys):
    assert list(bar("averaging", "abc")) == ["a", "b", "c"]
    say_on_terminal("converting")
    assert not capsys.readouterr().err


def test_ctrl_c_ends_in_one_line():
    code = (
        "import signal, sys; sys.argv[0] = 'fairseq-posenc'\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from fairseq_posenc import cli\n"
        "cli.parse = lambda words: (lambda args: signal.raise_signal(signal.SIGINT), None)\n"
        "cli.main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True)
    assert (done.returncode, done.stderr) == (-signal.SIGINT, b"fairseq-posenc: interrupted\n")
