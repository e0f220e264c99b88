"""Lines of text, JSON objects and progress bars; imports neither PyTorch nor fairseq."""

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
    """Decode UTF-8 *lines*, without the byte-order mark and the line ends."""
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
    """The :func:`decoded` lines of a text file; error messages begin with *subject*."""
    subject = str(path) if subject is None else subject
    try:
        with open(path, "rb") as lines:
            yield from decoded(lines, subject)
    except OSError as error:
        raise UsageError(f"{subject}: cannot be read ({error.strerror or error})") from error


def in_blocks(items: Iterable[Item], size: int) -> Iterator[List[Item]]:
    """Lists of *size* items; the last list can be shorter."""
    source = iter(items)
    return iter(lambda: list(itertools.islice(source, size)), [])


def json_text(content: Mapping[str, Any]) -> str:
    """A JSON object as the text of a file, with one entry per line."""
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def json_value(text: str) -> Any:
    """The value of a JSON text; ValueError if it is not JSON or has an unpaired surrogate."""
    value = json.loads(text)
    if re.search(r"\\u[dD][89a-fA-F]", text):  # escaped surrogates, usually in pairs
        half = re.search("(.{0,30})([\ud800-\udfff])", json.dumps(value, ensure_ascii=False))
        if half:
            raise ValueError(f"unpaired surrogate {half[2]!a} after {half[1]!r}")
    return value


def read_json_object(
    path: str, subject: str, advice: str = "give a file that can be read"
) -> Dict[str, Any]:
    """Read a JSON object; *advice* says what to do if the file cannot be read."""
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


def bar(name: str, items: Iterable[Any], total: Optional[int] = None, unit: str = " lines") -> Any:
    """A tqdm progress bar to iterate over *items*; shown only on a terminal."""
    from tqdm import tqdm  # imported here because most commands draw no bar

    # without tqdm's monitor thread, because worker processes are forked while the bar runs
    alone: Any = type("Bar", (tqdm,), {"monitor_interval": 0})
    return alone(items, name, total, unit=unit, miniters=1, disable=None)


def say_on_terminal(text: str) -> None:
    """Print *text* if standard error is a terminal."""
    if sys.stderr.isatty():
        print(text, file=sys.stderr, flush=True)
