"""Assigned positions, in place of 0, 1, 2, …, computed once a forward pass."""

from typing import NamedTuple, Optional, Tuple

import torch
from fairseq.data import Dictionary
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.encodings import Stack
from fairseq_posenc.encodings.base import Places
from fairseq_posenc.encodings.position_ids import FLAG, PositionRule, Ruled, Tokens, class_of_rule
from fairseq_posenc.flags.options import Options


class Assigned(NamedTuple):
    """Assigned positions of a batch."""

    rows: Tensor  # row of the input table for each token, (1|B, S), int64
    bound: int  # a number above all of them
    places: Optional[Places]  # positions in attention; None for 0, 1, 2, …


class AssignedPositions:
    """Assigns the positions of ``--position-ids`` to the batches of a stack.

    It can be replaced; see :func:`~fairseq_posenc.flags.registry.register_replacement`.
    """

    def __init__(self, options: Options, stack: Stack, dictionary: Dictionary) -> None:
        self.rule: Optional[PositionRule] = None
        if options.position_ids is not None:
            rule = class_of_rule(options.position_ids)
            self.rule = rule(options, stack, dictionary.indices)
        self.padding = dictionary.pad()
        self.side, self.most = stack.side, stack.max_positions
        #: the flag that assigns positions, with which messages begin
        self.flag = "" if self.rule is None else f"{FLAG} {options.position_ids}: "

    def refuse_cache(self) -> None:
        """Refuse a cache if further tokens would change the positions of cached keys."""

    def of_batch(self, tokens: Tensor, counted: Tensor, training: bool) -> Optional[Assigned]:
        """The assigned positions of a batch, or None.

        *tokens* (B, S) are without those in a memory; *counted* are 0, 1, 2, …, (1|B, S).
        """
        if self.rule is None:
            return None
        return self.assigned(*self.ruled(tokens), by_index=False)

    def ruled(self, tokens: Tensor) -> Tuple[Ruled, int]:
        """Positions of *tokens* (B, S) by the rule, 0 at padding, and a number above them."""
        assert self.rule is not None
        real = tokens.ne(self.padding)
        ruled = self.rule.places(Tokens(tokens, real))
        ruled = ruled.each(lambda positions: positions.masked_fill(~real, 0))
        every = torch.cat([each for each in ruled if each is not None])
        least, most = torch.stack((every.min(), every.max())).tolist()
        if least < 0:
            raise UsageError(
                f"{self.flag}a position of the {self.side} is {least}; give numbers from 0 on"
            )
        return ruled, int(most) + 1

    def assigned(self, ruled: Ruled, bound: int, by_index: bool, remedy: str = "") -> Assigned:
        """Check positions and make an :class:`Assigned` of them.

        All positions are below *bound*; *by_index* says whether distances in the layers are
        differences of indices; *remedy* is another remedy for too many positions, for the message.
        """
        if bound > self.most:
            raise UsageError(
                f"{self.flag}the positions of a batch go up to {bound - 1}, and the {self.side} "
                f"has {self.most}; give shorter texts{remedy}, or a model with more positions"
            )
        if ruled.layers is None:
            return Assigned(ruled.table, bound, None)
        return Assigned(ruled.table, bound, Places(ruled.layers, ruled.layers, bound, by_index))
