"""Checks that sequences are not too long for a kernel, and moves padding behind real tokens."""

from typing import List, Optional, Tuple

import torch
from torch import Tensor

from fairseq_posenc.attention.functional import Batch
from fairseq_posenc.basics.errors import UsageError, flag_of
from fairseq_posenc.encodings import Stack
from fairseq_posenc.flags.options import Options, option


def complete_length(options: Options, stacks: List[Stack], name: str, why: str) -> None:
    """Set the setting *name* to the *stacks*' longest input, in tokens, unless it has a value.

    Raises:
        UsageError: an input could be longer than the value; *why* gives the reason in the message.
    """
    longest = max(stack.max_positions for stack in stacks)
    if option(options, name) is None:
        setattr(options, name, longest)
    length = option(options, name)
    if length < longest:
        raise UsageError(
            f"{flag_of(name)} {length}: inputs can have {longest} tokens, and {why}; give at "
            "least the length of the longest input, or limit inputs to fewer tokens"
        )


def refuse_longer(options: Options, name: str, batch: Batch) -> None:
    """Refuse a batch whose sequences are longer than the value of the setting *name*."""
    longest = int(option(options, name))
    if batch.length > longest:
        raise UsageError(
            f"{flag_of(name)} {longest}: a sequence has {batch.length} tokens; shorten it"
        )


def real_first(x: Tensor, padding_mask: Tensor) -> Tuple[Tensor, Tensor]:
    """Move the real tokens of each sequence (B, T, C) to its front, with zeros after them.

    >>> x, mask = torch.tensor([[[7.0], [1.0], [2.0]]]), torch.tensor([[True, False, False]])
    >>> moved, places = real_first(x, mask)
    >>> moved.flatten(), places
    (tensor([1., 2., 0.]), tensor([[0, 0, 1]]))

    Returns:
        (B, T, C), and the new index of each token, (B, T); padding has the index of a neighbour.
    """
    places = (~padding_mask).long().cumsum(dim=1).sub(1).clamp(min=0)
    real = x.masked_fill(padding_mask.unsqueeze(-1), 0.0)
    return torch.zeros_like(x).scatter_add(1, places.unsqueeze(-1).expand_as(x), real), places


def put_back(x: Tensor, places: Optional[Tensor], padding_mask: Optional[Tensor]) -> Tensor:
    """Undo :func:`real_first` for outputs *x* (B, T, C), with zeros at padding.

    Without *places* or *padding_mask*, *x* is returned unchanged.
    """
    if places is None or padding_mask is None:
        return x
    moved = x.gather(1, places.unsqueeze(-1).expand_as(x))
    return moved.masked_fill(padding_mask.unsqueeze(-1), 0.0)
