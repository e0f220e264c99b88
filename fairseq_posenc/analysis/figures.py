"""Drawing with matplotlib into a file that is complete or absent."""

from pathlib import Path
from typing import Any

from fairseq_posenc.extras import import_extra
from fairseq_posenc.files import replace_file

FORMATS = ("pdf", "png", "svg")


def import_pyplot(needed_by: str) -> Any:
    """``matplotlib.pyplot``, for files alone.

    Args:
        needed_by: the flag or argument that asks for a figure, for the message.

    Raises:
        UsageError: matplotlib is not installed.
    """
    import_extra("matplotlib", needed_by).use("Agg")
    return import_extra("matplotlib.pyplot", needed_by)


def save_figure(figure: Any, output: Path, dpi: int = 120, flag: str = "--output") -> None:
    """Write *figure* and close it.

    Args:
        figure: of matplotlib.
        output: the file; a name that ends in .pdf or .svg chooses that format, any other PNG.
        dpi: resolution of a PNG, in dots an inch.
        flag: where *output* comes from, for messages.

    Raises:
        UsageError: the file cannot be written.
    """
    suffix = output.suffix.lower().lstrip(".")
    with replace_file(output, flag) as partial:
        figure.savefig(partial, format=suffix if suffix in FORMATS else "png", dpi=dpi)
    import_pyplot(flag).close(figure)
