"""Lists of lengths, as ``--lengths`` takes them."""

from typing import List

from fairseq_posenc.errors import UsageError


def parse_lengths(text: str) -> List[int]:
    """Growing lengths from numbers separated by commas.

    Raises:
        UsageError: if *text* is something else.
    """
    try:
        lengths = sorted({int(number) for number in text.split(",")})
    except ValueError:
        lengths = []
    if not lengths or lengths[0] < 1:
        raise UsageError(f"--lengths {text}: expected numbers such as 128,256,512")
    return lengths
