"""Randomised positions: in training, an ordered random subset of the positions of longer texts.

Ruoss et al., arXiv 2305.16843, section 3: a training sequence of n tokens takes the n positions of
a subset of 0 … L - 1, drawn without replacement and sorted, so all positions up to L are seen in
training.  All sequences of a batch share one subset, and so do all layers of a stack.  In
evaluation positions are 0, 1, …: the paper draws them there, too, which a decoder with a cache
cannot do, because a longer text would change the positions of its cached keys.
"""

from typing import Iterable, Optional

import torch
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.encodings.base import Encoding, Stack


def check_random_positions(
    number: Optional[int], name: str, encodings: Iterable[Encoding], stack: Stack
) -> None:
    """Refuse randomised positions where the encodings are not given positions.

    Args:
        number: value of ``--random-positions``, or None.
        name: value of ``--position-encoding``.
        encodings: its encodings.
        stack: the longest sequence, and the side.

    Raises:
        UsageError: naming the encoding or the length.
    """
    if number is None:
        return
    for encoding in encodings:
        if encoding.input or encoding.content:
            raise UsageError(
                f"--random-positions {number}: {encoding.name} in --position-encoding {name} is "
                "not given positions: it counts tokens; drop the flag, or give an encoding such as "
                "rotary, alibi or t5"
            )
    if number > stack.max_positions:
        raise UsageError(
            f"--random-positions {number}: must be at most the {stack.max_positions} positions of "
            f"the {stack.side}; give a smaller number, or a model with more positions"
        )


def sample_positions(length: int, number: int, keep_first: bool, device: torch.device) -> Tensor:
    """A sorted random sample of 0 … *number* - 1.

    >>> _ = torch.manual_seed(1)
    >>> sample_positions(4, 100, False, torch.device("cpu"))
    tensor([15, 32, 45, 90])

    Args:
        length: S, the size of the sample.
        number: L.
        keep_first: let position 0, where an untied [CLS] is, be in the sample.
        device: device of the result.

    Returns:
        (S), int64.

    Raises:
        UsageError: *length* is more than *number*.
    """
    if length > number:
        raise UsageError(
            f"--random-positions {number}: a training sequence has {length} tokens; give at least "
            "the longest, or shorten it"
        )
    sample = torch.randperm(number, device=device)[:length].sort().values
    if keep_first:
        sample[:1] = 0
    return sample
