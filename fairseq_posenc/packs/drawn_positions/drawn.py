"""The random positions of a batch under ``--random-positions``."""

from typing import Optional

import torch
from fairseq.data import Dictionary
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.encodings import Stack
from fairseq_posenc.encodings.position_ids import Ruled
from fairseq_posenc.flags.options import Options
from fairseq_posenc.flags.replacements import register_replacement
from fairseq_posenc.packs.drawn_positions.samplers import class_of_sampler, spreads
from fairseq_posenc.stacks.assigned import Assigned, AssignedPositions


@register_replacement("random_positions", of=AssignedPositions)
class DrawnPositions(AssignedPositions):
    """Replaces positions 0, 1, 2, … or those of a rule by random ones in training.

    In evaluation it spreads them if ``--evaluation-positions`` selects this.  Arguments are those
    of the base class.
    """

    def __init__(self, options: Options, stack: Stack, dictionary: Dictionary) -> None:
        super().__init__(options, stack, dictionary)
        self.sampler, self.spreads = class_of_sampler(options)(options), spreads(options)
        # [CLS] is known by its position 0
        rule_keeps = self.rule is not None and self.rule.zero_is_none
        self.keep_zero = bool(options.untie_cls) or rule_keeps

    def refuse_cache(self) -> None:
        """Refuse a cache for positions that are spread over the whole text."""
        if self.spreads:
            raise UsageError(
                "--evaluation-positions spread: positions depend on the length of the whole text, "
                "so nothing can be generated with a cache; for generation give --model-overrides "
                "\"{'evaluation_positions': 'counted'}\""
            )

    def of_batch(self, tokens: Tensor, counted: Tensor, training: bool) -> Optional[Assigned]:
        """The positions of a batch, as in the base class."""
        if not (training or self.spreads):
            return super().of_batch(tokens, counted, training)
        ruled, length = Ruled(counted, counted), counted.size(1)
        if self.rule is not None:
            ruled, length = self.ruled(tokens)
        bound = self.sampler.limit(length)
        if training:
            drawn = self.sampler.draw(length, len(tokens), tokens.device)  # (1|B, length)
        else:
            size = length - tokens.size(1) + tokens.ne(self.padding).sum(dim=1, keepdim=True)
            drawn = self.sampler.spread(length, size.clamp(min=1))
        if self.keep_zero:
            drawn = torch.cat((torch.zeros_like(drawn[:, :1]), drawn[:, 1:]), dim=1)
        by_index = self.rule is None and self.sampler.keeps_distances
        remedy = ", a smaller --random-positions"
        return self.assigned(ruled.moved(drawn), bound, by_index, remedy)
