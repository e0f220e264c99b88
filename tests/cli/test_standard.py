"""Standard input and output that are closed, or do not have all characters."""

import io
import subprocess
import sys

import pytest
from support.commands import ROOT

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.cli.standard import printing, standard_input, standard_output


@pytest.mark.parametrize("stream, opened", [("stdin", standard_input), ("stdout", standard_output)])
def test_a_closed_stream_is_one_line(monkeypatch, stream, opened):
    monkeypatch.setattr(sys, stream, None)
    with pytest.raises(UsageError, match="standard (in|out)put: is closed; give a file"):
        opened()
    with printing():  # who has nothing to print does not care
        pass


def test_what_the_locale_does_not_have_is_printed_all_the_same(monkeypatch):
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    with printing():
        print("10³ tokens")
    assert written.getvalue() == b"10\\xb3 tokens\n"


def test_help_is_printed_in_every_locale():
    words = [sys.executable, "-m", "fairseq_posenc", "plot", "positions", "--help"]
    done = subprocess.run(
        words, cwd=ROOT, env={"PYTHONIOENCODING": "ascii"}, capture_output=True, text=True
    )
    assert done.returncode == 0 and done.stderr == "" and "\\u03a3" in done.stdout
