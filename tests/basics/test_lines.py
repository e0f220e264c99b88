"""Reading texts: what goes wrong ends in one line that names the file."""

import io

import pytest

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.lines import (
    decoded,
    json_text,
    read_json_object,
    read_lines,
)

pytestmark = pytest.mark.refusals

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


def test_text_that_is_not_utf8_is_named_with_its_line(tmp_path):
    bad = tmp_path / "bad"
    bad.write_bytes(b"gut\nschlecht \xff\n")
    assert "bad: line 2: not UTF-8 (byte 10" in refuses(list, read_lines(bad))
    assert "nowhere: cannot be read (No such file" in refuses(list, read_lines("nowhere"))


def test_half_of_a_character_in_json_is_named_with_what_stands_before(tmp_path):
    path = tmp_path / "text.json"
    path.write_text('{"text": "so \\uD83D."}')
    words = """is not JSON (half of a character, '\\ud83d', after '{"text": "so ')"""
    assert words in refuses(read_json_object, str(path), str(path))
    path.write_text(json_text({"a": "\U0001f600 \\ud83d"}))
    assert read_json_object(str(path), str(path)) == {"a": "\U0001f600 \\ud83d"}
