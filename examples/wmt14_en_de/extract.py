"""Extract parallel texts from tar archives without unpacking the rest.

    fairseq-posenc script extract.py SOURCE_OUTPUT TARGET_OUTPUT \\
        --from ARCHIVE.tgz MEMBER.en MEMBER.de [--from ...]

The corpora are concatenated in the order given, to outputs that are compressed if their names end
in .gz.  Of members that end in .sgm, only the text of the segments is kept.  Both sides of a corpus
must have the same number of lines.
"""

import gzip
import os
import re
import sys
import tarfile
import zlib
from typing import IO, Callable, Dict, Iterator, List, Optional, Sequence, TextIO
from xml.sax.saxutils import unescape

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.lines import write_text
from fairseq_posenc.basics.standard import Progress
from fairseq_posenc.flags.usage import documented_parser

_SEGMENT = re.compile(r"<seg\b[^>]*>(.*?)</seg\s*>", re.DOTALL | re.IGNORECASE)
_QUOTES = {"&quot;": '"', "&apos;": "'"}


def read_segments(sgm: str, name: str) -> List[str]:
    """Return the text of every segment, in order, one line each.

    The files are not XML (their tags are not always closed), so segments are found
    by searching.  Entities are decoded, and runs of white space become single spaces.

    Args:
        sgm: content of the file.
        name: its name, for error messages about missing or truncated segments.
    """
    segments = _SEGMENT.findall(sgm)
    opened = len(re.findall(r"<seg\b", sgm, re.IGNORECASE))
    if not segments or opened != len(segments):
        raise UsageError(f"{name}: {opened} segments begin, but only {len(segments)} are complete")
    return [" ".join(unescape(segment, _QUOTES).split()) for segment in segments]


def member_lines(stream: IO[bytes], name: str) -> Iterator[str]:
    """Yield the sentences of an archive member, plain or SGM."""
    if name.endswith(".sgm"):
        yield from read_segments(stream.read().decode("utf-8-sig"), name)
    else:
        encoding = "utf-8-sig"  # a byte-order mark can only be in the first line
        for line in stream:
            yield line.decode(encoding).rstrip("\n")
            encoding = "utf-8"


def walk(archive: str, wanted: Dict[str, Callable[[IO[bytes]], None]]) -> None:
    """Read an archive once, from start to end, and pass on the wanted members.

    Args:
        archive: path of a gzip-compressed tar file.
        wanted: callbacks by the name of the member.
    """
    try:
        with gzip.open(archive) as unzipped:
            with tarfile.open(fileobj=unzipped, mode="r|") as tar:
                for member in tar:
                    consume = wanted.get(os.path.normpath(member.name))
                    stream = tar.extractfile(member) if consume else None
                    if consume and stream is not None:
                        consume(stream)
            while unzipped.read(1 << 20):  # the checksum is at the very end
                pass
    except UnicodeDecodeError as error:
        raise UsageError(f"{archive}: not UTF-8 ({error.reason})") from error
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise UsageError(f"{archive}: damaged or not an archive ({error}); replace it") from error


def extract(archive: str, names: Sequence[str], outputs: Sequence[TextIO]) -> int:
    """Append one corpus of an archive to the outputs.

    Args:
        archive: path of the archive.
        names: its source and target members.
        outputs: the files to append them to.

    Returns:
        the number of sentence pairs.
    """
    counts: Dict[str, int] = {}

    def copier(name: str, output: TextIO) -> Callable[[IO[bytes]], None]:
        def copy(stream: IO[bytes]) -> None:
            counts[name] = 0
            progress = Progress(name)
            for line in member_lines(stream, name):
                output.write(line + "\n")
                counts[name] += 1
                progress.at(counts[name])
            progress.end(counts[name])

        return copy

    walk(archive, {name: copier(name, output) for name, output in zip(names, outputs)})
    for name in names:
        if name not in counts:
            raise UsageError(f"{archive}: has no {name}; is it the right archive?")
    source, target = (counts[name] for name in names)
    if source != target:
        raise UsageError(f"{archive}: {names[0]} has {source} lines, {names[1]} has {target}")
    return source


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Run the command line."""
    parser = documented_parser(__doc__, "source_output", "target_output")
    parser.add_argument(
        "--from",
        dest="corpora",
        action="append",
        nargs=3,
        required=True,
        metavar=("ARCHIVE", "SOURCE", "TARGET"),
        help="archive and its two members; may be repeated",
    )
    args = parser.parse_args(argv)
    total = 0
    with write_text(args.source_output) as left, write_text(args.target_output) as right:
        for archive, source, target in args.corpora:
            count = extract(archive, (source, target), (left, right))
            print(f"{source}: {count} pairs", file=sys.stderr)
            total += count
    print(f"{args.source_output}: {total} pairs", file=sys.stderr)


if __name__ == "__main__":
    main()
