"""Batches of texts of similar length."""

from typing import List, Optional, Sequence


def batches_by_tokens(
    lengths: Sequence[int], limit: int, groups: Optional[Sequence[int]] = None
) -> List[List[int]]:
    """Numbers of texts, those of similar length together.

    >>> batches_by_tokens([5, 2, 3, 9], 6)
    [[1, 2], [0], [3]]

    Args:
        lengths: tokens of each text.
        limit: largest number of tokens in a batch, padding included, unless one text has more.
        groups: only texts of the same group share a batch.
    """
    of = groups or [0] * len(lengths)
    batches: List[List[int]] = []
    for number in sorted(range(len(lengths)), key=lambda n: (of[n], lengths[n])):
        last = batches[-1] if batches else []
        if last and of[last[0]] == of[number] and (len(last) + 1) * lengths[number] <= limit:
            last.append(number)
        else:
            batches.append([number])
    return batches
