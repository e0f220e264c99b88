"""Running text of a corpus, from JSON lines or plain text, with a blank line between documents.

    python running_text.py INPUT OUTPUT

INPUT is a text with blank lines between documents; or its name ends in .jsonl, and each line is a
document, {"text": "..."}, as OpenWebText2 and the Pile are published. White space at the ends of
lines is dropped, and so are blank lines within a document; nothing else is changed.
"""

import argparse
import json
import sys
from typing import Iterator, List, Optional, Sequence

from text import atomic_writer, fail, read_lines


def documents(path: str) -> Iterator[List[str]]:
    """The documents of a file, each a list of lines that are not blank."""
    if path.endswith(".jsonl"):
        for number, line in enumerate(read_lines(path), 1):
            if line.strip():
                yield _lines(_text(line, f"{path}, line {number}").splitlines())
        return
    document: List[str] = []
    for line in read_lines(path):
        if line.strip():
            document.append(line)
        elif document:
            yield _lines(document)
            document = []
    yield _lines(document)


def _text(line: str, where: str) -> str:
    try:
        text = json.loads(line)["text"]
    except ValueError as error:
        fail(f"{where}: is not JSON ({error}); expected one object a line")
    except (KeyError, TypeError):
        fail(f"{where}: has no text; expected {{'text': '...'}}")
    if not isinstance(text, str):
        fail(f"{where}: its text is {text!r}; expected {{'text': '...'}}")
    return text


def _lines(lines: Sequence[str]) -> List[str]:
    return [line.rstrip() for line in lines if line.strip()]


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("input")
    parser.add_argument("output")
    args = parser.parse_args(argv)
    count = 0
    with atomic_writer(args.output) as stream:
        for document in documents(args.input):
            if document:
                stream.write("\n" * bool(count) + "\n".join(document) + "\n")
                count += 1
        if not count:
            fail(f"{args.input}: contains no text")
    print(f"{args.input}: {count} documents", file=sys.stderr)


if __name__ == "__main__":
    main()
