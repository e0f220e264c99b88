"""Sequences without the padding in front of them."""

from typing import Optional, Tuple

import torch
from torch import Tensor


def real_first(x: Tensor, padding_mask: Tensor) -> Tuple[Tensor, Tensor]:
    """Move the real tokens of each sequence to its front, with zeros after them.

    >>> x, mask = torch.tensor([[[7.0], [1.0], [2.0]]]), torch.tensor([[True, False, False]])
    >>> moved, places = real_first(x, mask)
    >>> moved.flatten(), places
    (tensor([1., 2., 0.]), tensor([[0, 0, 1]]))

    Args:
        x: (B, T, C).
        padding_mask: (B, T), True at padding.

    Returns:
        (B, T, C), and where each token is now, (B, T); padding has the place of a neighbour.
    """
    places = count_real(padding_mask).sub(1).clamp(min=0)
    real = x.masked_fill(padding_mask.unsqueeze(-1), 0.0)
    return torch.zeros_like(x).scatter_add(1, places.unsqueeze(-1).expand_as(x), real), places


def count_real(padding_mask: Tensor) -> Tensor:
    """The number of real tokens up to each token, itself included, (B, T)."""
    return (~padding_mask).long().cumsum(dim=1)


def put_back(x: Tensor, places: Optional[Tensor], padding_mask: Optional[Tensor]) -> Tensor:
    """Undo :func:`real_first` for results (B, T, C), with zeros at padding; None if not moved."""
    if places is None or padding_mask is None:
        return x
    found = x.gather(1, places.unsqueeze(-1).expand_as(x))
    return found.masked_fill(padding_mask.unsqueeze(-1), 0.0)
