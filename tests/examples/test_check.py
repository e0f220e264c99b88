"""check.py of the recipes: what would lose text in silence is refused in one line."""

import gzip
import subprocess
import sys

import pytest
from support.commands import ROOT

CHECK = ROOT / "examples" / "common" / "check.py"
TEXT = b"a b\nc\n"


def check(folder, *words):
    return subprocess.run(
        [sys.executable, CHECK, *words], cwd=folder, capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize(
    "words, content, message",
    [
        (
            "texts one two",
            gzip.compress(TEXT, mtime=0),
            "two: is compressed; unpack it first: gunzip two",
        ),
        ("texts two", TEXT + b"\xff\n", "two, line 3: is not UTF-8 (invalid start byte)"),
        ("texts two", b"\n \n", "two: is empty"),
        ("texts none", TEXT, "none: No such file or directory"),
        ("pairs one two", TEXT + b"d\n", "one has 2 lines, two has 3"),
        ("pairs one two", b"a\rb\nc\n", "two, line 1: has a carriage return; remove it: tr '\\r'"),
        ("lengths 3 one two", TEXT + b"a b c d\n", "two, line 3: has 4 tokens; a sample has up to"),
        ("vocabulary one two", TEXT + b"d\n", "two: 50% is not in one; is it another's?"),
    ],
)
def test_what_would_lose_text_is_refused(tmp_path, words, content, message):
    (tmp_path / "one").write_bytes(TEXT)
    (tmp_path / "two").write_bytes(content)
    refused = check(tmp_path, *words.split())
    assert refused.returncode == 1 and refused.stderr.splitlines()[-1].startswith(message)
    assert "Traceback" not in refused.stderr


@pytest.mark.parametrize(
    "words", ["texts one two", "pairs one two", "lengths 2 one", "vocabulary dict one"]
)
def test_what_is_whole_passes(tmp_path, words):
    (tmp_path / "one").write_bytes(TEXT)
    (tmp_path / "two").write_bytes("x\r\n\u2028y\r\n".encode())
    (tmp_path / "dict").write_bytes(b"a 1\nb 1\nc 1 #fairseq:overwrite\n")
    passed = check(tmp_path, *words.split())
    assert passed.returncode == 0 and "Traceback" not in passed.stderr, passed.stderr
