"""Lists of lengths, as ``--lengths`` takes them."""

from typing import List

from fairseq_posenc.basics.errors import UsageError


def parse_lengths(text: str) -> List[int]:
    """Parse lengths separated by commas, and sort them.

    Raises:
        UsageError: *text* is not such a list.
    """
    try:
        lengths = sorted({int(number) for number in text.split(",")})
    except ValueError:
        lengths = []
    if not lengths or lengths[0] < 1:
        raise UsageError(f"--lengths {text}: expected numbers such as 128,256,512")
    return lengths
