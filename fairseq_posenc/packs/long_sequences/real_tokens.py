"""Real tokens of a batch moved to the front, for kernels that need them in one piece."""

from typing import Optional, Tuple

import torch
from torch import Tensor


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
