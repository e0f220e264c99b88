"""Splits packed samples into documents, and joins the outputs of documents again.

The documents of a batch become the rows of new batches with padding on the right, which a stack
computes like any other batch.  So each document has the same output as if it were alone, with every
encoding and attention, and no tensor has a value for each pair of tokens in a sample.
"""

import logging
from argparse import Namespace
from typing import List, NamedTuple, Optional, Sequence

import numpy as np
import torch
from fairseq.data import Dictionary
from fairseq.distributed import FullyShardedDataParallel
from torch import Tensor

from fairseq_posenc.attention import Padding
from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.encodings.position_ids import DocumentPositions, Tokens, last
from fairseq_posenc.flags.options import Layer, Options, option
from fairseq_posenc.models.segments import FirstBatches

logger = logging.getLogger(__name__)

FLAG = "--document-mask"

_NO_DOCUMENTS = (
    f"{FLAG}: no sample of the first %d batches has more than one document, so the flag "
    "has changed nothing so far; documents end at --position-separators (default: </s>), and "
    "samples can hold several documents with --sample-break-mode none or complete"
)
#: The cost of one more batch, in tokens, for each type of device: measured on a CPU; estimated for
#: a GPU from the time to start the kernels.
COST = {"cpu": 64, "cuda": 2048}


class DocumentGroup(NamedTuple):
    """Documents of similar lengths, as the rows of a batch."""

    places: Tensor  # index of each token in the flattened samples, (N, L); any index at padding
    hidden: Optional[Tensor]  # (N, L), True at padding; None if there is none

    def rows(self, x: Tensor) -> Tensor:
        """The values (N, L, …) of the group's tokens in *x* (B, S, …)."""
        rows = x.flatten(0, 1).index_select(0, self.places.flatten())
        return rows.view(*self.places.shape, *x.shape[2:])

    def padding(self, causal: bool) -> Padding:
        """Padding on the right, which a causal mask hides."""
        return Padding(None if causal else self.hidden)


class Packed(NamedTuple):
    """The documents of the samples of a batch, in groups."""

    tokens: Tensor  # (B, S)
    groups: List[DocumentGroup]
    back: Tensor  # index of each token in the flattened groups, (B·S); at padding, their total size
    filling: int  # id of the padding symbol

    def texts(self, group: DocumentGroup) -> Tensor:
        """The tokens (N, L) of a group, with padding."""
        texts = group.rows(self.tokens)
        return texts if group.hidden is None else texts.masked_fill(group.hidden, self.filling)

    def join(self, parts: Sequence[Tensor]) -> Tensor:
        """Put the outputs of the groups, (N, L, C) each, into samples (B, S, C), 0 at padding.

        >>> group = DocumentGroup(torch.tensor([[2], [0]]), None)
        >>> packed = Packed(torch.tensor([[5, 1, 6]]), [group], torch.tensor([1, 2, 0]), filling=1)
        >>> packed.join([torch.tensor([[[6.0]], [[5.0]]])]).flatten()
        tensor([5., 0., 6.])
        """
        flat = [part.flatten(0, 1) for part in parts]
        joined = torch.cat([*flat, flat[0].new_zeros(1, flat[0].size(1))])
        return joined.index_select(0, self.back).view(*self.tokens.shape, -1)

    def join_states(self, parts: Sequence[Sequence[Tensor]]) -> List[Tensor]:
        """Put the states between layers of the groups, (L, N, C) each, into samples, (S, B, C)."""
        layers = [self.join([x.transpose(0, 1) for x in each]) for each in zip(*parts)]
        return [state.transpose(0, 1) for state in layers]


class DocumentSplitter:
    """Splits the samples of a stack into documents.

    With a ``--position-ids`` other than ``documents``, documents end at ``</s>``, because
    ``--position-separators`` then belong to that rule.

    Raises:
        UsageError: the dictionary lacks a separator, or the layers are sharded.
    """

    def __init__(self, options: Options, stack: Layer, dictionary: Dictionary) -> None:
        if any(isinstance(layer, FullyShardedDataParallel) for layer in stack.layers.children()):
            raise UsageError(
                f"{FLAG}: cannot be combined with --ddp-backend fully_sharded, whose processes "
                "must apply a layer equally often; drop one of the two"
            )
        if option(options, "position_ids") not in (None, "documents"):
            options = Namespace(position_separators=None)
        self.rule = DocumentPositions(options, stack.encoding.stack, dictionary.indices)
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
        self, tokens: Tensor, training: bool, original: Optional[Tensor] = None
    ) -> Optional[Packed]:
        """The documents of a batch, or None if no sample has more than one.

        The lengths are read from the device.  In a traced graph each sample is one document.

        Args:
            tokens: (B, S).
            training: whether to warn if no sample of the first batches has several documents.
            original: (B, S), the tokens before masking, because masks can hide separators; by
                default *tokens*.
        """
        if torch.jit.is_tracing():
            return None
        begins = self.begins(tokens if original is None else original)
        marks, real = torch.stack((begins, tokens.ne(self.filling))).cpu().numpy()
        several = bool((marks.sum(axis=1) > 1).any())
        if training and self.first_batches.left:
            self.first_batches.saw(several)
        if not several:
            return None
        starts = np.flatnonzero(marks)
        lengths = np.bincount(marks.cumsum()[real.flatten()] - 1, minlength=len(starts))
        return _packed(tokens, starts, lengths, self.filling)


def _packed(tokens: Tensor, starts: np.ndarray, lengths: np.ndarray, filling: int) -> Packed:
    """Pack N documents of *tokens* (B, S), with these *lengths* (N), into groups.

    *starts* (N) are the indices of their first tokens in the flattened *tokens*.
    """
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
    # all at once, because each copy to a GPU takes time
    moved = torch.from_numpy(np.concatenate((*parts, back))).to(tokens.device)
    *on_device, back_on_device = moved.split([len(part) for part in (*parts, back)])
    groups = []
    for part, places, (rows, columns) in zip(parts, on_device, shapes):
        places = places.view(rows, columns)
        hidden = places < 0 if part.min() < 0 else None
        groups.append(DocumentGroup(places if hidden is None else places.clamp(min=0), hidden))
    return Packed(tokens, groups, back_on_device, filling)


def group_sizes(lengths: np.ndarray, cost: int) -> List[int]:
    """The numbers of documents in groups that minimise the total cost of padding and groups.

    >>> group_sizes(np.array([90, 88, 12, 10]), 64)
    [2, 2]
    >>> group_sizes(np.array([90, 88, 60]), 64)
    [3]

    *lengths* (N) are in descending order; *cost* is the cost of one more group, in tokens.
    """
    # the least cost of the first n documents, for all n at which the length changes
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
