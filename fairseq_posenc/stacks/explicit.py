"""Positions that are not simply counted, worked out once a forward pass."""

from typing import NamedTuple, Optional

from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.encodings import Stack
from fairseq_posenc.encodings.random_positions import Sampler, sampler_of
from fairseq_posenc.flags.options import Options


class Explicit(NamedTuple):
    """Positions of a batch in place of those that are counted."""

    of_table: Tensor  # what a table that is added to the embeddings is read at, (1|B, S), int64
    of_layers: Optional[Tensor]  # what attention is given, likewise; None for counted positions
    reach: int  # a number above all of them
    even: bool  # whether those of the layers differ as the indices of tokens do
    row: Optional[Tensor] = None  # those of a sequence without padding, (S), if all have the same


class ExplicitPositions:
    """Makes the positions of a stack's batches where they are drawn at random.

    Args:
        options: the model configuration, complete.
        stack: the side, and the number of its positions.
    """

    def __init__(self, options: Options, stack: Stack) -> None:
        self.sampler: Optional[Sampler] = sampler_of(options)
        self.keep_first = bool(options.untie_cls)  # [CLS] is known by its position 0
        self.side, self.most = stack.side, stack.max_positions

    def of_batch(self, counted: Tensor, rows: int, training: bool) -> Optional[Explicit]:
        """The positions of a batch, or None if they are counted.

        Args:
            counted: the positions that they replace, (1|B, S), all below S.
            rows: B.
            training: whether ``--random-positions`` has an effect.

        Raises:
            UsageError: there are more positions than the stack has.
        """
        if self.sampler is None or not training:
            return None
        length, device = counted.size(1), counted.device
        reach = self.sampler.limit(length)
        if reach > self.most:
            raise UsageError(
                f"the positions of a batch go up to {reach - 1}, and the {self.side} has "
                f"{self.most}; give shorter texts, a smaller --random-positions, or a model with "
                "more positions"
            )
        drawn = self.sampler.draw(length, rows, device)  # (1|B, S)
        if self.keep_first:
            drawn = drawn.clone()
            drawn[:, 0] = 0
        outer = max(len(drawn), len(counted))
        found = drawn.expand(outer, -1).gather(1, counted.expand(outer, -1))
        row = drawn[0] if self.sampler.same_rows else None
        return Explicit(found, found, reach, self.sampler.keeps_distances, row)
