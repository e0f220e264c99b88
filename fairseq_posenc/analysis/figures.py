"""Drawing with matplotlib, and saving atomically."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairseq_posenc.extras import import_extra
from fairseq_posenc.files import replace_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = ("pdf", "png", "svg")


def import_pyplot(needed_by: str) -> Any:
    """``matplotlib.pyplot`` with a back-end that only writes files.

    Args:
        needed_by: the flag or argument that asks for a figure, for the error message.

    Raises:
        UsageError: matplotlib is not installed.
    """
    import_extra("matplotlib", needed_by).use("Agg")
    return import_extra("matplotlib.pyplot", needed_by)


def save_figure(figure: "Figure", output: Path, dpi: int = 120, flag: str = "--output") -> None:
    """Write *figure* and close it.

    Args:
        figure: a figure of matplotlib.
        output: the file; PDF or SVG if its name ends in .pdf or .svg, otherwise PNG.
        dpi: resolution of a PNG, in dots per inch.
        flag: the flag that gave *output*, for the error message.

    Raises:
        UsageError: the file cannot be written.
    """
    suffix = output.suffix.lower().lstrip(".")
    with replace_file(output, flag) as partial:
        figure.savefig(partial, format=suffix if suffix in FORMATS else "png", dpi=dpi)
    import_pyplot(flag).close(figure)
