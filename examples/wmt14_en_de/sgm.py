"""Reading the SGM files in which WMT published its test sets."""

import re
from typing import List
from xml.sax.saxutils import unescape

from text import fail

_SEGMENT = re.compile(r"<seg\b[^>]*>(.*?)</seg\s*>", re.DOTALL | re.IGNORECASE)
_QUOTES = {"&quot;": '"', "&apos;": "'"}


def read_segments(sgm: str, name: str) -> List[str]:
    """Return the text of every segment, in order, one line each.

    The files are not XML (their tags are not always closed), so segments are searched for
    rather than parsed.  Entities become characters and white space single spaces.

    Args:
        sgm: content of the file.
        name: its name, for the error when there is no segment or a cut one.
    """
    segments = _SEGMENT.findall(sgm)
    opened = len(re.findall(r"<seg\b", sgm, re.IGNORECASE))
    if not segments or opened != len(segments):
        fail(f"{name}: {opened} segments begin and {len(segments)} are complete")
    return [" ".join(unescape(segment, _QUOTES).split()) for segment in segments]
