"""Windows over a passage that is longer than what the model reads (BERT, arXiv 1810.04805)."""

from typing import List, NamedTuple


class Window(NamedTuple):
    """A part of a passage, in tokens; ends are exclusive.

    Args:
        start: its first token.
        end: the token after its last.
        own_start: the first token of which this window sees more context than any other window.
        own_end: the token after the last such token.
    """

    start: int
    end: int
    own_start: int
    own_end: int


def windows(length: int, room: int, stride: int) -> List[Window]:
    """Windows that cover a passage.

    The context of a token in a window is the smaller of the numbers of tokens before and after it;
    the earlier window counts where two see as much.  So every token is owned by one window.

    >>> windows(7, 4, 2)
    [Window(start=0, end=4, own_start=0, own_end=3), Window(start=2, end=6, own_start=3, \
own_end=5), Window(start=4, end=7, own_start=5, own_end=7)]

    Args:
        length: tokens of the passage.
        room: largest number of tokens in a window.
        stride: tokens from the start of a window to that of the next, at most *room*.
    """
    starts = [0]
    while starts[-1] + room < length:
        starts.append(starts[-1] + stride)
    ends = [min(start + room, length) for start in starts]
    owners = []
    for token in range(length):
        seeing = [n for n, s in enumerate(starts) if s <= token < ends[n]]
        owners.append(max(seeing, key=lambda n: min(token - starts[n], ends[n] - 1 - token)))
    found, at = [], 0
    for number, (start, end) in enumerate(zip(starts, ends)):
        size = owners.count(number)
        found.append(Window(start, end, at, at + size))
        at += size
    return found
