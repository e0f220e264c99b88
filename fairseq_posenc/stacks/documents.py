"""Packed samples taken apart for ``--document-mask``, and put together again.

The documents of a batch become rows of batches that are padded on the right.  A stack computes each
of these as any other batch, so a document is what it is alone under every encoding and attention,
and no tensor has the size of all pairs of a sample.
"""

import logging
from typing import List, NamedTuple, Optional, Sequence

import numpy as np
import torch
from fairseq.data import Dictionary
from torch import Tensor

from fairseq_posenc.attention import Padding
from fairseq_posenc.encodings import Stack
from fairseq_posenc.encodings.position_ids import Tokens, last
from fairseq_posenc.encodings.position_rules import documents_of
from fairseq_posenc.flags.options import Options
from fairseq_posenc.stacks.first_batches import FirstBatches

logger = logging.getLogger(__name__)

_NO_DOCUMENTS = (
    "--document-mask: no sample of the first %d batches has more than one document, so it changes "
    "nothing so far; documents end as --position-separators says, by default at </s>, and samples "
    "hold several with --sample-break-mode none or complete"
)
#: The cost of running the layers for one more batch, as a number of tokens, by the type of device.
#: On a CPU it was measured; on a GPU it is an estimate of the time to start the kernels.
COST = {"cpu": 64, "cuda": 2048}


class Group(NamedTuple):
    """Documents of similar lengths, as the rows of a batch."""

    places: Tensor  # where tokens are in the flattened samples, (N, L); at padding, anywhere
    hidden: Optional[Tensor]  # (N, L), True at padding; None if there is none

    def rows(self, x: Tensor) -> Tensor:
        """The rows (N, L, …) of the samples' *x* (B, S, …)."""
        found = x.flatten(0, 1).index_select(0, self.places.flatten())
        return found.view(*self.places.shape, *x.shape[2:])

    def padding(self, causal: bool) -> Padding:
        """Padding on the right, which a causal mask hides."""
        return Padding(None if causal else self.hidden)


class Packed(NamedTuple):
    """The documents of the samples of a batch."""

    tokens: Tensor  # (B, S)
    groups: List[Group]
    back: Tensor  # where tokens are in the flattened groups; the end for padding, (B·S)
    filling: int  # the symbol of padding

    def texts(self, group: Group) -> Tensor:
        """The tokens of a group (N, L)."""
        found = group.rows(self.tokens)
        return found if group.hidden is None else found.masked_fill(group.hidden, self.filling)

    def join(self, parts: Sequence[Tensor]) -> Tensor:
        """The samples (B, S, C), 0 at padding, of what is computed for the groups, (N, L, C) each.

        >>> group = Group(torch.tensor([[2], [0]]), None)
        >>> packed = Packed(torch.tensor([[5, 1, 6]]), [group], torch.tensor([1, 2, 0]), filling=1)
        >>> packed.join([torch.tensor([[[6.0]], [[5.0]]])]).flatten()
        tensor([5., 0., 6.])
        """
        flat = [part.flatten(0, 1) for part in parts]
        joined = torch.cat([*flat, flat[0].new_zeros(1, flat[0].size(1))])
        return joined.index_select(0, self.back).view(*self.tokens.shape, -1)


class Documents:
    """Finds the documents of a stack's samples.

    Args:
        options: the model configuration, complete.
        stack: the encoder or decoder.
        dictionary: that of its tokens.

    Raises:
        UsageError: the dictionary lacks a separator.
    """

    def __init__(self, options: Options, stack: Stack, dictionary: Dictionary) -> None:
        self.rule = documents_of(options, stack, dictionary.indices)
        self.filling = dictionary.pad()
        self.first_batches = FirstBatches(logger.warning, _NO_DOCUMENTS)

    def begins(self, tokens: Tensor) -> Tensor:
        """True at the first token of each document (B, S)."""
        real = tokens.ne(self.filling)
        return real & self.rule.begins(Tokens(tokens, real))

    def of_last(self, tokens: Tensor) -> Tensor:
        """The index of the first token of each sample's last document, (B, 1)."""
        return last(self.begins(tokens))[:, -1:]

    def packed(
        self, tokens: Tensor, training: bool, begins: Optional[Tensor] = None
    ) -> Optional[Packed]:
        """The documents of a batch, or None if no sample has more than one.

        Their lengths are read from the device.  A traced graph takes each sample for a document.

        Args:
            tokens: (B, S).
            training: whether to look for a boundary.
            begins: True at the first token of each document, (B, S); by default where the tokens
                say, which masks may have hidden.
        """
        if torch.jit.is_tracing():
            return None
        begins = self.begins(tokens) if begins is None else begins
        marks, real = torch.stack((begins, tokens.ne(self.filling))).cpu().numpy()
        found = bool((marks.sum(axis=1) > 1).any())
        if training and self.first_batches.waiting:
            self.first_batches.saw(found)
        if not found:
            return None
        starts = np.flatnonzero(marks)
        lengths = np.bincount(marks.cumsum()[real.flatten()] - 1, minlength=len(starts))
        return _grouped(tokens, starts, lengths, self.filling)


def _grouped(tokens: Tensor, starts: np.ndarray, lengths: np.ndarray, filling: int) -> Packed:
    """Documents by their first places in the flattened *tokens* (B, S), (N), and lengths, (N)."""
    order = np.argsort(-lengths, kind="stable")
    starts, lengths = starts[order], lengths[order]
    sizes = group_sizes(lengths, COST.get(tokens.device.type, COST["cuda"]))
    edges = np.cumsum(sizes)[:-1]
    back = np.full(tokens.numel(), -1)
    parts, shapes, before = [], [], 0
    for start, length in zip(np.split(starts, edges), np.split(lengths, edges)):
        column = np.arange(length[0])
        real = column < length[:, None]  # (N, L)
        places = np.where(real, start[:, None] + column, -1)
        back[places[real]] = before + np.flatnonzero(real)
        before += real.size
        parts.append(places.flatten())
        shapes.append(real.shape)
    back[back < 0] = before
    # all at once, since a GPU waits for each tensor of the host
    moved = torch.from_numpy(np.concatenate((*parts, back))).to(tokens.device)
    *found, on_device = moved.split([len(part) for part in (*parts, back)])
    groups = []
    for part, places, (rows, columns) in zip(parts, found, shapes):
        places = places.view(rows, columns)
        hidden = places < 0 if part.min() < 0 else None
        groups.append(Group(places if hidden is None else places.clamp(min=0), hidden))
    return Packed(tokens, groups, on_device, filling)


def group_sizes(lengths: np.ndarray, cost: int) -> List[int]:
    """How many documents to put into each group, so that padding and groups cost the least.

    >>> group_sizes(np.array([90, 88, 12, 10]), 64)
    [2, 2]
    >>> group_sizes(np.array([90, 88, 60]), 64)
    [3]

    Args:
        lengths: lengths of the documents, in descending order, (N).
        cost: cost of one more group, in tokens.
    """
    # the cheapest way to divide the first n documents, for all n where the length changes
    ends = np.append(np.flatnonzero(np.diff(lengths)) + 1, len(lengths))
    counts, longest = np.append(0, ends), lengths[np.append(0, ends[:-1])]
    costs, previous = np.zeros(len(counts)), np.zeros(len(counts), dtype=int)
    for n in range(1, len(counts)):
        ways = costs[:n] + cost + longest[:n] * (counts[n] - counts[:n])
        previous[n] = ways.argmin()
        costs[n] = ways[previous[n]]
    sizes, n = [], len(counts) - 1
    while n > 0:
        sizes.append(int(counts[n] - counts[previous[n]]))
        n = previous[n]
    return sizes[::-1]
