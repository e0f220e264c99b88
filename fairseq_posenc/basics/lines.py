"""Lines of text, JSON objects and a bar that counts; imports neither PyTorch nor fairseq."""

import codecs
import itertools
import json
import re
import sys
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, TypeVar

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.files import FilePath

Item = TypeVar("Item")


def decoded(lines: Iterable[bytes], subject: str) -> Iterator[str]:
    """Lines of UTF-8 as text, without byte-order mark, and without line feeds at the ends."""
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
    """The lines of the text in a file; see :func:`decoded`.  Messages begin with *subject*."""
    subject = str(path) if subject is None else subject
    try:
        with open(path, "rb") as lines:
            yield from decoded(lines, subject)
    except OSError as error:
        raise UsageError(f"{subject}: cannot be read ({error.strerror or error})") from error


def in_blocks(items: Iterable[Item], size: int) -> Iterator[List[Item]]:
    """Lists of *size* items; the last can be shorter."""
    source = iter(items)
    return iter(lambda: list(itertools.islice(source, size)), [])


def json_text(content: Mapping[str, Any]) -> str:
    """The text of a file that holds a JSON object, with a line for each entry."""
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def json_value(text: str) -> Any:
    """The value of a JSON text; ValueError if there is none, or none that UTF-8 can hold."""
    value = json.loads(text)
    if re.search(r"\\u[dD][89a-fA-F]", text):  # halves of characters, most of them in pairs
        half = re.search("(.{0,30})([\ud800-\udfff])", json.dumps(value, ensure_ascii=False))
        if half:
            raise ValueError(f"half of a character, {half[2]!a}, after {half[1]!r}")
    return value


def read_json_object(
    path: str, subject: str, advice: str = "give a file that can be read"
) -> Dict[str, Any]:
    """Read a JSON object; *advice* says what to do if there is no such file."""
    try:
        with open(path, encoding="utf-8-sig") as file:  # editors add byte-order marks
            content = json_value(file.read())
    except OSError as error:
        reason = error.strerror or error
        raise UsageError(f"{subject} cannot be read ({reason}); {advice}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{subject} is not JSON ({error})") from error
    if not isinstance(content, dict):
        raise UsageError(f"{subject} holds no JSON object")
    return content


def bar(
    name: str,
    items: Optional[Iterable[Any]] = None,
    total: Optional[int] = None,
    unit: str = " lines",
    **settings: Any,
) -> Any:
    """A bar of tqdm, to iterate over *items* or to update; shown only on a terminal."""
    from tqdm import tqdm  # here, since most commands draw none

    # no thread of its own, since processes that map texts are forked while the bar runs
    alone: Any = type("Bar", (tqdm,), {"monitor_interval": 0})
    return alone(items, name, total, unit=unit, **{"miniters": 1, "disable": None, **settings})


def say_on_terminal(text: str) -> None:
    """Say what is being done where its progress cannot be counted."""
    if sys.stderr.isatty():
        print(text, file=sys.stderr, flush=True)
