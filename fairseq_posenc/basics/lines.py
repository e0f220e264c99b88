"""Reading text files; imports neither PyTorch nor fairseq."""

from typing import Iterator, Optional

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.files import FilePath


def read_lines(path: FilePath, subject: Optional[str] = None) -> Iterator[str]:
    """The lines of a text, split at line feeds only, without carriage returns at their ends.

    Args:
        path: its file.
        subject: the file, at the start of messages; *path* by default.

    Raises:
        UsageError: it cannot be read, or is not UTF-8.
    """
    subject = f"{path}:" if subject is None else subject
    try:
        with open(path, encoding="utf-8-sig", newline="\n") as stream:
            for line in stream:
                yield line.rstrip("\r\n")
    except OSError as error:
        raise UsageError(f"{subject} cannot be read ({error.strerror or error})") from error
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{subject} is not UTF-8 ({error.reason}); convert it, for example with iconv -t UTF-8"
        ) from error
