"""The batch of a forward pass, as the kernels see it: padding, positions and sizes."""

from typing import List, NamedTuple, Optional, Tuple

import torch
from torch import Tensor

from fairseq_posenc.encodings.places import Places


class Padding(NamedTuple):
    """The tokens of a batch that are padding, and where its texts begin."""

    mask: Optional[Tensor] = None  # (B, S), True at padding; None if no real token could see any
    left: bool = False  # whether a sequence begins with padding
    empty: bool = False  # whether a sequence has nothing but padding
    # length of the first text of each pair, (B, 1), for patterns that depend on it
    first_text: Optional[Tensor] = None

    def empty_rows(self, causal: bool) -> bool:
        """True if a query may see no key at all."""
        return self.mask is not None and (self.empty or (causal and self.left))

    def after(self, memory: int) -> "Padding":
        """The same padding with *memory* tokens in front, visible to all."""
        if self.mask is None:
            return self
        seen = self.mask.new_zeros(self.mask.size(0), memory)
        return Padding(torch.cat((seen, self.mask), dim=1))


def read_padding(*sides: Tuple[Tensor, bool]) -> List[Padding]:
    """The padding of several batches, with one read from the device.

    Whether there is padding decides how attention is computed, so the host has to wait for the
    answer.  On a GPU that stops the queue of kernels: all questions of a step are asked at once.

    >>> mask = torch.tensor([[False, False, True]])
    >>> [padding.mask is None for padding in read_padding((mask, False), (mask, True))]
    [False, True]

    Args:
        sides: the padding of each batch, (B, S), True at padding; and whether a causal mask hides
            padding on the right, the usual kind in training, from all real tokens.
    """
    if torch.jit.is_tracing():  # a graph serves other batches, too
        return [Padding(mask, left=True, empty=True) for mask, _ in sides]
    answers = []
    for mask, causal in sides:
        visible = mask[:, :-1] & ~mask[:, 1:] if causal else mask
        answers += [visible.any(), mask[:, 0].any(), mask.all(dim=1).any()]
    flags = iter(torch.stack(answers).tolist())
    return [
        Padding(mask if visible else None, left, empty)
        for (mask, _), visible, left, empty in zip(sides, flags, flags, flags)
    ]


def count_positions(relative: bool, length: int, padding: Padding, device: torch.device) -> Tensor:
    """Positions of a sequence, counted from the first real token if necessary.

    All rows share one set of positions if an offset has no effect, or if there is no padding on the
    left.

    Args:
        relative: whether only distances matter to what receives the positions.
        length: S.
        padding: the padding of the batch.
        device: device of the result.

    Returns:
        (1, S) or (B, S), int64, from 0; padding gets the position of a neighbour.
    """
    if padding.mask is None or relative or not padding.left:
        return torch.arange(length, device=device).unsqueeze(0)
    return (torch.cumsum((~padding.mask).long(), dim=1) - 1).clamp(min=0)


class Batch(NamedTuple):
    """What a kernel may ask for when it prepares a forward pass.

    Args:
        like: input of the first layer for the new tokens, (B, T, C); they are the last T of S,
            unless *given* says otherwise.
        length: S.
        padding: the padding of all S tokens.
        causal: hide later keys.
        projected: how many of the last keys this forward pass projects, if not T: S where layers
            get other *keys* than their input, as with a memory; the others are in the cache.
        given: positions in place of those that are counted.
    """

    like: Tensor
    length: int
    padding: Padding = Padding()
    causal: bool = False
    projected: Optional[int] = None
    given: Optional[Places] = None

    @property
    def queries(self) -> int:
        """T."""
        return self.like.size(1)

    def places(self, relative: bool) -> Places:
        """The positions of queries and keys.

        Args:
            relative: whether only distances matter to what receives them; all sequences can then
                share one row, whatever their padding.
        """
        if self.given is not None:
            new = self.given.queries[:, -self.queries :]
            return self.given._replace(queries=new)
        keys = count_positions(relative, self.length, self.padding, self.like.device)
        return Places(keys[:, self.length - self.queries :], keys, self.length, by_index=True)
