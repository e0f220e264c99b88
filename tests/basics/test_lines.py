"""Reading and writing texts: what goes wrong ends in one line that names the file."""

import bz2
import gzip
import io
import lzma
import os

import pytest

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.lines import (
    decoded,
    json_text,
    read_json_lines,
    read_json_object,
    read_lines,
    write_text,
)

CONTENT = b"\xef\xbb\xbfein Haus\r\n\xef\xbb\xbfzwei\rdrei\nohne\x0b\xe2\x80\xa8\xc2\x85 Ende"
LINES = ["ein Haus", "\ufeffzwei\rdrei", "ohne\x0b\u2028\x85 Ende"]


def refuses(function, *arguments):
    """The one line that *function* ends with."""
    with pytest.raises(UsageError) as caught:
        function(*arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_only_line_feeds_end_lines_and_a_byte_order_mark_is_no_text(tmp_path):
    (tmp_path / "text").write_bytes(CONTENT)
    assert list(read_lines(tmp_path / "text")) == LINES
    assert list(decoded(io.BytesIO(CONTENT), "standard input")) == LINES


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_compressed_text_is_read(tmp_path, pack):
    packed = tmp_path / "train.de"
    whole = pack(CONTENT)
    packed.write_bytes(whole)
    assert list(read_lines(packed)) == LINES
    packed.write_bytes(whole[:-5])
    assert "train.de: damaged" in refuses(list, read_lines(packed))


def test_what_cannot_be_unpacked_here_is_refused_by_name(tmp_path):
    packed = tmp_path / "train.de"
    for start, command in ((b"PK\x03\x04", "unzip"), (b"\x28\xb5\x2f\xfd", "unzstd")):
        packed.write_bytes(start + b"...")
        message = refuses(list, read_lines(packed))
        assert f"train.de: is compressed; unpack it first: {command}" in message


def test_text_that_is_not_utf8_is_named_with_its_line(tmp_path):
    bad = tmp_path / "bad.gz"
    bad.write_bytes(gzip.compress(b"gut\nschlecht \xff\n"))
    assert "bad.gz: line 2: not UTF-8 (byte 10" in refuses(list, read_lines(bad))
    assert "nowhere: cannot be read (No such file" in refuses(list, read_lines("nowhere"))


def test_half_of_a_character_in_json_is_named_with_what_stands_before(tmp_path):
    path = tmp_path / "text.json"
    path.write_text('{"a": "\\ud83d\\ude00"}\n{"text": "so \\uD83D."}\n')
    lines = read_json_lines(path)
    assert next(lines) == (1, {"a": "\U0001f600"})
    words = "line 2: is not JSON (half of a character, '\\ud83d', after '{\"text\": \"so ')"
    assert words in refuses(next, lines)
    path.write_text('{"text": "so \\uD83D."}')
    assert "is not JSON (half of a character" in refuses(read_json_object, str(path), str(path))
    path.write_text(json_text({"a": "\U0001f600 \\ud83d"}))
    assert read_json_object(str(path), str(path)) == {"a": "\U0001f600 \\ud83d"}


def test_a_name_that_ends_in_gz_is_compressed_to_the_same_bytes(tmp_path):
    paths = [tmp_path / name for name in ("one.gz", "two.gz")]
    for path in paths:
        with write_text(path) as stream:
            stream.write("a\r\u2028\nß\n")
    one, two = (path.read_bytes() for path in paths)
    assert one == two and gzip.decompress(one) == "a\r\u2028\nß\n".encode()


def test_what_cannot_be_written_is_one_line_and_leaves_nothing(tmp_path):
    (tmp_path / "in").write_text("a\n")
    (tmp_path / "folder").mkdir()

    def write(path):
        with write_text(path) as stream:
            stream.write("a")

    assert "in/out: cannot be written (" in refuses(write, tmp_path / "in" / "out")
    assert "folder: is a directory" in refuses(write, tmp_path / "folder")
    assert sorted(os.listdir(tmp_path)) == ["folder", "in"]
