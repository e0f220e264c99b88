"""Aligns the tokens of a text with its characters, whichever tool split the text.

Tokens may differ from the text in case, accents and quotes, be escaped by Moses, or be unknown.
Text and tokens are therefore normalised, and compared character by character.
"""

import bisect
import difflib
import html
import os
import re
import unicodedata
from typing import Iterable, List, Optional, Sequence, Tuple

Span = Tuple[int, int]

#: WordPiece's mark of a piece inside a word, which some detokenisers do not remove.
_CONTINUES = re.compile(r"^##(?=.)")
#: One character, or one of Moses's escape sequences for a character.
_CHARACTER = re.compile(r"&(?:amp|lt|gt|quot|apos|bar|#\d{2,4});|.", re.DOTALL)
_QUOTES = dict.fromkeys(map(ord, "\"'`´‘’‚‛“”„‟«»‹›′″"), "'")


def _key(character: str) -> str:
    """Normalise a *character* for comparison; the result has one, several or no characters."""
    letters = unicodedata.normalize("NFKD", character.translate(_QUOTES)).casefold()
    return "".join(
        "-" if category == "Pd" else letter
        for letter in unicodedata.normalize("NFKD", letters).translate(_QUOTES)
        for category in [unicodedata.category(letter)]
        if category[0] not in "MZC"
    )


def _keys(parts: Iterable[Tuple[str, Span]]) -> Tuple[str, List[Span]]:
    """Normalise and join characters; also returns the source span of each resulting character."""
    found = [(key, place) for character, place in parts for key in _key(character)]
    return "".join(key for key, _ in found), [place for _, place in found]


def _characters(surfaces: Sequence[str]) -> Iterable[Tuple[str, Span]]:
    """The unescaped characters of tokens, each with the indices of its first and last token."""
    owners = [number for number, surface in enumerate(surfaces) for _ in surface]
    for escaped in _CHARACTER.finditer("".join(surfaces)):
        character = "|" if escaped.group() == "&bar;" else html.unescape(escaped.group())
        yield character, (owners[escaped.start()], owners[escaped.end() - 1])


def covering(offsets: Sequence[Span], start: int, end: int) -> Optional[Span]:
    """The indices of the first and last token that cover characters *start* to *end* (exclusive).

    *offsets* are the starts and ends of all tokens.  Returns None if no token covers a character.
    """
    first = bisect.bisect_right([token_end for _, token_end in offsets], start)
    last = bisect.bisect_left([token_start for token_start, _ in offsets], end) - 1
    return (first, last) if first <= last else None


def token_offsets(text: str, surfaces: Sequence[str]) -> List[Span]:
    """The start and end (exclusive) of the characters of *text* that each token stands for.

    Starts and ends never decrease.  *surfaces* are the tokens without word-boundary marks.  A token
    that matches no character, such as ``<unk>``, stands for all characters between its matched
    neighbours.  Adjacent tokens of this kind, such as the bytes of a character, share one span.

    >>> text = "Zürich – 1 «Stadt»"
    >>> [text[start:end] for start, end in token_offsets(text, ["zur", "##ich", "-", "1",
    ...     "&quot;", "<unk>", "&quot;"])]
    ['Zür', 'ich', '–', '1', '«', 'Stadt', '»']
    """
    surfaces = [_CONTINUES.sub("", surface) for surface in surfaces]
    text_keys, places = _keys((c, (at, at + 1)) for at, c in enumerate(text))
    token_keys, owners = _keys(_characters(surfaces))
    starts, ends = [-1] * len(surfaces), [-1] * len(surfaces)
    for left, right, size in _matching(text_keys, token_keys):
        for (start, end), (first, last) in zip(
            places[left : left + size], owners[right : right + size]
        ):
            for token in range(first, last + 1):
                starts[token] = start if starts[token] < 0 else starts[token]
                ends[token] = max(end, ends[token])
    return _without_gaps(text, starts, ends)


def _matching(one: str, other: str) -> List[Tuple[int, int, int]]:
    """Matching blocks of two strings, in order: the start in each string, and the length."""
    before = len(os.path.commonprefix([one, other]))
    behind = len(os.path.commonprefix([one[before:][::-1], other[before:][::-1]]))
    middle = difflib.SequenceMatcher(
        None, one[before : len(one) - behind], other[before : len(other) - behind], False
    )
    blocks = [(0, 0, before)]
    blocks += [(before + b.a, before + b.b, b.size) for b in middle.get_matching_blocks()]
    return [*blocks, (len(one) - behind, len(other) - behind, behind)]


def _without_gaps(text: str, starts: List[int], ends: List[int]) -> List[Span]:
    """Spans of tokens; an unmatched token (start -1) gets the text between its neighbours."""
    limits, following = [0] * len(starts), len(text)
    for token in reversed(range(len(starts))):
        limits[token] = following
        following = starts[token] if starts[token] >= 0 else following
    spans: List[Span] = []
    before = 0
    for token, (start, end) in enumerate(zip(starts, ends)):
        if start < 0:
            gap = text[before : limits[token]]
            start = before + len(gap) - len(gap.lstrip())
            end = max(start, before + len(gap.rstrip()))
        else:
            before = end
        spans.append((start, end))
    return spans
