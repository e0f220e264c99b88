"""Positions that are not simply counted, worked out once a forward pass."""

from typing import NamedTuple, Optional, Tuple

import torch
from fairseq.data import Dictionary
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.encodings import Stack
from fairseq_posenc.encodings.base import Places
from fairseq_posenc.encodings.position_ids import FLAG, PositionRule, Ruled, Tokens, rule_of
from fairseq_posenc.encodings.random_positions import sampler_of, spreads
from fairseq_posenc.flags.options import Options


class Explicit(NamedTuple):
    """Positions of a batch in place of those that are counted."""

    rows: Tensor  # at what a table that is added to the embeddings is read, (1|B, S), int64
    bound: int  # a number above all of them
    places: Optional[Places]  # what attention is given; None for counted positions


class ExplicitPositions:
    """Makes the positions of a stack's batches where they are drawn, or follow a rule.

    Args:
        options: the model configuration, complete.
        stack: the side, and the number of its positions.
        dictionary: that of its tokens.

    Raises:
        UsageError: the dictionary lacks a symbol that the rule needs.
    """

    def __init__(self, options: Options, stack: Stack, dictionary: Dictionary) -> None:
        self.sampler = sampler_of(options)
        self.spreads = spreads(options)
        self.rule: Optional[PositionRule] = None
        if options.position_ids is not None:
            self.rule = rule_of(options, stack, dictionary.indices)
        # [CLS] is known by its position 0
        rule_keeps = self.rule is not None and self.rule.zero_is_none
        self.keep_zero = bool(options.untie_cls) or rule_keeps
        self.padding = dictionary.pad()
        self.side, self.most = stack.side, stack.max_positions
        #: how messages begin: with the flag that gives the positions
        self.given = "" if self.rule is None else f"{FLAG} {options.position_ids}: "

    def of_batch(self, tokens: Tensor, counted: Tensor, training: bool) -> Optional[Explicit]:
        """The positions of a batch, or None if they are counted.

        Args:
            tokens: (B, S), without those that a memory holds.
            counted: the usual positions, (1|B, S), all below S.
            training: whether ``--random-positions`` draws; else it can spread positions.

        Raises:
            UsageError: positions are negative, or more than the stack has.
        """
        sampler = self.sampler if training or self.spreads else None
        if self.rule is None:
            if sampler is None:
                return None
            ruled, bound = Ruled(counted, counted), counted.size(1)
        else:
            ruled, bound = self._ruled(tokens)
        by_index = self.rule is None
        if sampler is not None:
            length, bound = bound, sampler.limit(bound)
            if training:
                drawn = sampler.draw(length, len(tokens), tokens.device)  # (1|B, length)
            else:
                size = length - tokens.size(1) + tokens.ne(self.padding).sum(dim=1, keepdim=True)
                drawn = sampler.spread(length, size.clamp(min=1))
            if self.keep_zero:
                drawn = torch.cat((torch.zeros_like(drawn[:, :1]), drawn[:, 1:]), dim=1)
            by_index = by_index and sampler.keeps_distances
            ruled = ruled.moved(drawn)
        if bound > self.most:
            smaller = ", a smaller --random-positions" if sampler is not None else ""
            raise UsageError(
                f"{self.given}the positions of a batch go up to {bound - 1}, and the {self.side} "
                f"has {self.most}; give shorter texts{smaller}, or a model with more positions"
            )
        places = None
        if ruled.layers is not None:
            places = Places(ruled.layers, ruled.layers, bound, by_index)
        return Explicit(ruled.table, bound, places)

    def _ruled(self, tokens: Tensor) -> Tuple[Ruled, int]:
        """Positions of *tokens* (B, S), 0 at padding, and a number above all of them."""
        assert self.rule is not None
        real = tokens.ne(self.padding)
        places = self.rule.places(Tokens(tokens, real))
        places = places.each(lambda positions: positions.masked_fill(~real, 0))
        every = torch.cat([each for each in places if each is not None])
        least, most = torch.stack((every.min(), every.max())).tolist()
        if least < 0:
            raise UsageError(
                f"{self.given}a position of the {self.side} is {least}; give numbers from 0 on"
            )
        return places, int(most) + 1
