"""How far long work has come: on a terminal, in a log, and nowhere else."""

import io
import signal
import subprocess
import sys

import pytest
from support.commands import ROOT

from fairseq_posenc.basics.progress import bar, say_on_terminal

pytestmark = pytest.mark.properties


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_bar_counts_on_a_terminal(monkeypatch):
    terminal = Terminal()
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
