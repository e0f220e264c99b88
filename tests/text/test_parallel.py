"""Mapping the lines of texts in several processes."""

import os
import signal
import subprocess
import sys

import pytest
from support.recipes import error_of, write

from fairseq_posenc.basics import progress
from fairseq_posenc.text import parallel


def killed(line):
    """Kill the process that works on the line ``kill``, as the kernel does without memory."""
    if line == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    return line


def make_killed():
    return parallel.each(killed)


def test_a_killed_worker_is_one_line_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(parallel, "CHUNK", 3)
    source = write(tmp_path / "in", [*"abcdefgh", "kill", *"ijk"])
    message = error_of(parallel.map_texts, make_killed, (), [source, str(tmp_path / "out")], 2)
    assert "in: a worker process was killed" in message and "--workers 2" in message
    assert os.listdir(tmp_path) == ["in"]


def test_workers_end_when_their_parent_is_killed(tmp_path):
    program = tmp_path / "fairseq-posenc"  # which imports the package without fairseq
    program.write_text(
        "import os, signal, sys\nfrom fairseq_posenc.text import parallel\n"
        "parallel.CHUNK = 1\n"
        "def make():\n    return parallel.each(lambda line: os.getpid())\n"
        "pids = set(parallel.parallel_map(make, (), sys.argv[1], 2))\n"
        "results = parallel.parallel_map(make, (), sys.argv[1], 2)\n"
        "print(next(results), flush=True)\nos.kill(os.getpid(), signal.SIGKILL)\n"
    )
    words = [sys.executable, str(program), write(tmp_path / "in", "abcdef")]
    # the standard output stays open for as long as a worker lives
    result = subprocess.run(words, stdout=subprocess.PIPE, timeout=30)
    assert result.returncode == -signal.SIGKILL and int(result.stdout)


def test_long_work_reports_its_progress(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(parallel, "CHUNK", 2)
    monkeypatch.setattr(progress, "DELAY", 0)
    monkeypatch.setattr(progress, "REPORT", 0)
    source = write(tmp_path / "in", "abcde")
    assert list(parallel.parallel_map(make_killed, (), source, 1)) == list("abcde")
    said = capsys.readouterr().err
    assert all(f"in: {part:3}%" in said for part in (20, 60, 100))


@pytest.mark.parametrize("texts", [["in"], ["in", "out", "in"]])
def test_an_input_without_output_is_refused(texts):
    assert "in: has no output" in error_of(parallel.map_texts, make_killed, (), texts, 1)
