"""Reading and writing lines of text, and JSON objects; imports neither PyTorch nor fairseq."""

import bz2
import codecs
import contextlib
import gzip
import io
import itertools
import json
import lzma
import os
import re
import zlib
from typing import (
    Any,
    Callable,
    Dict,
    Iterable,
    Iterator,
    List,
    Mapping,
    Optional,
    TextIO,
    Tuple,
    TypeVar,
)

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.files import FilePath, replace_file

Item = TypeVar("Item")
LEVEL = 3  # gzip's level: a seventh larger than at level 9, in a quarter of its time
#: The first bytes of compressed files, by the command that unpacks them.
COMPRESSED = {
    "gunzip": rb"\x1f\x8b",
    "unzip": rb"PK\x03\x04",
    "bunzip2": rb"BZh[1-9]1AY&",
    "unxz": rb"\xfd7zXZ",
    "unzstd": rb"\x28\xb5\x2f\xfd",
}
_READERS: Dict[str, Callable[[Any], Any]] = {
    "gunzip": gzip.open,
    "bunzip2": bz2.open,
    "unxz": lzma.open,
}
_DAMAGED = (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile)


def decoded(lines: Iterable[bytes], subject: str) -> Iterator[str]:
    """Lines of bytes as text, without byte-order mark, line feeds and carriage returns at the ends.

    Args:
        subject: where they come from, at the start of messages.

    Raises:
        UsageError: a line is not UTF-8.
    """
    for number, line in enumerate(lines, 1):
        if number == 1 and line.startswith(codecs.BOM_UTF8):
            line = line[len(codecs.BOM_UTF8) :]
        try:
            yield line.rstrip(b"\r\n").decode("utf-8")
        except UnicodeDecodeError as error:
            raise UsageError(
                f"{subject}: line {number}: not UTF-8 (byte {error.start + 1}: {error.reason}); "
                "convert the text, for example with iconv -t UTF-8"
            ) from error


def read_lines(path: FilePath, subject: Optional[str] = None) -> Iterator[str]:
    """The lines of a text; see :func:`decoded`.

    Args:
        path: its file, which may be compressed (gzip, bzip2, xz).
        subject: the file, at the start of messages; *path* by default.

    Raises:
        UsageError: the file cannot be read, is damaged, or is not UTF-8.
    """
    subject = str(path) if subject is None else subject
    try:
        with contextlib.ExitStack() as stack:
            raw: Any = stack.enter_context(open(path, "rb"))
            start, lines = raw.peek(16), raw  # type: bytes, Iterable[bytes]
            command = next((c for c, magic in COMPRESSED.items() if re.match(magic, start)), None)
            if command in _READERS:
                lines = io.BufferedReader(stack.enter_context(_READERS[command](raw)))
            elif command:
                raise UsageError(f"{path}: is compressed; unpack it first: {command} {path}")
            yield from decoded(lines, subject)
    except _DAMAGED as error:
        raise UsageError(f"{subject}: damaged ({error}); replace it") from error
    except OSError as error:
        raise UsageError(f"{subject}: cannot be read ({error.strerror or error})") from error


def in_blocks(items: Iterable[Item], size: int) -> Iterator[List[Item]]:
    """Lists of *size* items; the last can be shorter."""
    source = iter(items)
    return iter(lambda: list(itertools.islice(source, size)), [])


@contextlib.contextmanager
def write_text(path: FilePath, flag: str = "") -> Iterator[TextIO]:
    """Write a text that appears under its name only when it is complete.

    Args:
        path: the file, whose folder is made; a name that ends in .gz is compressed, to the same
            bytes every time.

    Raises:
        UsageError: the file cannot be written.
    """
    name = os.fspath(path)
    try:
        os.makedirs(os.path.dirname(name) or os.curdir, exist_ok=True)
    except OSError as error:
        shown = f"{flag} {name}".strip()
        raise UsageError(f"{shown}: cannot be written ({error.strerror or error})") from error
    with replace_file(path, flag) as partial, contextlib.ExitStack() as stack:
        binary: Any = stack.enter_context(open(partial, "wb"))
        if name.endswith(".gz"):
            binary = stack.enter_context(gzip.GzipFile("", "wb", LEVEL, binary, mtime=0))
            binary = stack.enter_context(io.BufferedWriter(binary, 1 << 16))
        yield stack.enter_context(io.TextIOWrapper(binary, "utf-8", newline="\n"))


def json_text(content: Mapping[str, Any]) -> str:
    """The text of a file that holds a JSON object, with a line for each entry."""
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def _value_of(text: str) -> Any:
    """The value that a text has in JSON; ValueError if it has none that UTF-8 could hold."""
    value = json.loads(text)
    if re.search(r"\\u[dD][89a-fA-F]", text):  # halves of characters, most of them in pairs
        half = re.search("(.{0,30})([\ud800-\udfff])", json.dumps(value, ensure_ascii=False))
        if half:
            raise ValueError(f"half of a character, {half[2]!a}, after {half[1]!r}")
    return value


def json_of(text: str, where: str, expected: str = "") -> Any:
    """The value that a text has in JSON.

    Args:
        where: its place, at the start of messages.
        expected: what it should be, at the end of messages.

    Raises:
        UsageError: the text is not JSON.
    """
    try:
        return _value_of(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where}: is not JSON ({error}){expected}") from error


def read_json_lines(path: FilePath) -> Iterator[Tuple[int, Any]]:
    """The values in a file with JSON in every line, each after its number, without blank lines.

    Raises:
        UsageError: a line is not JSON, or the file cannot be read.
    """
    for number, line in enumerate(read_lines(path), 1):
        if line.strip():
            where = f"{path}: line {number}"
            yield number, json_of(line, where, "; expected one object a line")


def read_json_object(
    path: str, subject: str, advice: str = "give a file that can be read"
) -> Dict[str, Any]:
    """Read a JSON object.

    Args:
        advice: what to do if there is no such file.

    Raises:
        UsageError: it cannot be read or is not a JSON object.
    """
    try:
        with open(path, encoding="utf-8-sig") as file:  # editors add byte-order marks
            content = _value_of(file.read())
    except OSError as error:
        reason = error.strerror or error
        raise UsageError(f"{subject} cannot be read ({reason}); {advice}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{subject} is not JSON ({error})") from error
    if not isinstance(content, dict):
        raise UsageError(f"{subject} holds no JSON object")
    return content
