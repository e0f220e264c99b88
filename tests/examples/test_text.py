"""Reading, writing and mapping texts in the recipes: what goes wrong ends in one line."""

import bz2
import gzip
import lzma
import os
import signal
import subprocess
import sys

import pytest
from support.recipes import COMMON, error_of, recipe_module, write

moses = recipe_module("common", "moses")
parallel = recipe_module("common", "parallel")
text = recipe_module("common", "text")


def test_a_byte_order_mark_is_not_part_of_the_text(tmp_path):
    marked = tmp_path / "marked"
    marked.write_bytes(b"\xef\xbb\xbfein Haus\n\xef\xbb\xbf\n")
    assert list(text.read_lines(str(marked))) == ["ein Haus", "\ufeff"]
    assert "marked: begins with a byte-order mark" in error_of(text.main, [str(marked)])
    text.main([write(tmp_path / "plain", ["ein Haus"])])


@pytest.mark.parametrize(
    "pack, command",
    [(gzip.compress, "gunzip"), (bz2.compress, "bunzip2"), (lzma.compress, "unxz")],
)
def test_compressed_text_is_read_here_and_refused_for_others(tmp_path, pack, command):
    packed = tmp_path / "train.de"
    whole = pack(b"\xef\xbb\xbfein Haus\n\xef\xbb\xbfzwei\rdrei\nohne Ende")
    packed.write_bytes(whole)
    assert list(text.read_lines(str(packed))) == ["ein Haus", "\ufeffzwei\rdrei", "ohne Ende"]
    message = error_of(text.main, [str(packed)])
    assert f"train.de: is compressed; unpack it first: {command}" in message
    packed.write_bytes(whole[:-5])
    assert "train.de: damaged" in error_of(list, text.read_lines(str(packed)))


def test_what_cannot_be_unpacked_here_is_refused_by_name(tmp_path):
    packed = tmp_path / "train.de"
    for start, command in ((b"PK\x03\x04", "unzip"), (b"\x28\xb5\x2f\xfd", "unzstd")):
        packed.write_bytes(start + b"...")
        for read in (text.main, lambda paths: list(text.read_lines(paths[0]))):
            message = error_of(read, [str(packed)])
            assert f"train.de: is compressed; unpack it first: {command}" in message


def test_a_name_that_ends_in_gz_is_compressed_to_the_same_bytes(tmp_path):
    paths = [str(tmp_path / name) for name in ("one.gz", "two.gz")]
    for path in paths:
        with text.atomic_writer(path) as stream:
            stream.write("a\r\u2028\nß\n")
    one, two = ((tmp_path / name).read_bytes() for name in ("one.gz", "two.gz"))
    assert one == two and gzip.decompress(one) == "a\r\u2028\nß\n".encode()


def test_text_that_is_not_utf8_is_named_with_its_line(tmp_path):
    bad = tmp_path / "bad.gz"
    bad.write_bytes(gzip.compress(b"gut\nschlecht \xff\n"))
    assert "bad.gz, line 2: not UTF-8" in error_of(list, text.read_lines(str(bad)))


def test_uneven_texts_are_refused_with_both_counts(tmp_path):
    three, one = write(tmp_path / "three", "abc"), write(tmp_path / "one", "a")
    for sides, counts in (((three, one), "3 and 1"), ((one, three), "1 and 3")):
        assert error_of(list, text.read_pairs(*sides)).endswith(f"numbers of lines: {counts}")


def killed(line):
    """Kill the process that works on the line ``kill``, as the kernel does without memory."""
    if line == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    return line


def make_killed():
    return killed


def test_a_killed_worker_ends_the_script_with_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(parallel, "CHUNK", 3)
    source = write(tmp_path / "in", [*"abcdefgh", "kill", *"ijk"])
    output = tmp_path / "out"
    message = error_of(parallel.map_lines, make_killed, (), source, str(output), 2)
    assert "in: a worker process was killed" in message and "--workers 2" in message
    assert os.listdir(tmp_path) == ["in"]


def test_workers_end_when_their_parent_is_killed(tmp_path):
    program = tmp_path / "parent.py"
    program.write_text(
        f"import os, signal, sys\nsys.path[:0] = [{str(COMMON)!r}]\nimport parallel\n"
        "parallel.CHUNK = 1\n"
        "def make():\n    return lambda line: os.getpid()\n"
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
    monkeypatch.setattr(text, "REPORT", 0)
    source = write(tmp_path / "in", "abcde")
    assert list(parallel.parallel_map(make_killed, (), source, 1)) == list("abcde")
    lines = capsys.readouterr().err.splitlines()
    assert [line.rpartition(": ")[2] for line in lines] == [
        *("2 lines so far, 40 %", "4 lines so far, 80 %", "5 lines so far"),
        "5 lines in 0 s",
    ]


def test_progress_names_the_rate_and_is_written_over_on_a_terminal(monkeypatch, capsys):
    clock = iter([0.0, 10.0, 40.0, 40.0, 50.0, 50.0])
    monkeypatch.setattr(text.time, "time", lambda: next(clock))
    progress = text.Progress("x")
    progress.at(100)
    progress.at(2000)
    monkeypatch.setattr(progress, "_terminal", True)
    progress.end(5000)
    lines = capsys.readouterr().err
    assert lines == (
        "x: 2000 lines so far, 50 a second\n\r\033[Kx: 5000 lines in 50 s, 100 a second\n"
    )


def test_what_cannot_be_written_is_one_line_and_leaves_nothing(tmp_path):
    source = write(tmp_path / "in", ["a"])
    flags = ["tokenize", "--lang", "de", source]
    below = error_of(moses.main, [*flags, os.path.join(source, "out")])
    assert "in/out: cannot be written (" in below
    (tmp_path / "folder").mkdir()
    full = error_of(moses.main, [*flags, str(tmp_path / "folder")])
    assert "folder: cannot be written (Is a directory)" in full
    assert sorted(os.listdir(tmp_path)) == ["folder", "in"]
