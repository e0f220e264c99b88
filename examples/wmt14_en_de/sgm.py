"""Reading the SGM files in which WMT published its test sets."""

import re
from typing import List
from xml.sax.saxutils import unescape

from text import fail

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
        fail(f"{name}: {opened} segments begin, but only {len(segments)} are complete")
    return [" ".join(unescape(segment, _QUOTES).split()) for segment in segments]
