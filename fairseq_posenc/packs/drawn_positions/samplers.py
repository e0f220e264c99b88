"""``--random-positions``: random positions in training, in place of 0, 1, 2, ….

    ordered    a sorted random subset of the positions of longer texts: Ruoss et al., arXiv
               2305.16843, section 3, "randomised positional encodings"
    shift      one random number added to all positions of a sequence: SHAPE, Kiyono et al., arXiv
               2109.05644, section 3

In evaluation, positions are 0, 1, …, as in SHAPE; Ruoss et al. draw random ones in evaluation, too.
``--evaluation-positions spread`` replaces a random sample by the mean of all sorted samples of n
positions: token i, counted from 0, has position (i + 1)(N + 1) / (n + 1) - 1, rounded.  A cache
rules these positions out, because each new token would change the positions of the cached keys.
"""

from typing import Optional, Type

import torch
from fairseq.data import Dictionary
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.encodings import Stack
from fairseq_posenc.encodings.position_ids import Ruled
from fairseq_posenc.flags.options import Options
from fairseq_posenc.flags.registry import ClassRegistry, register_replacement
from fairseq_posenc.stacks.positions import Assigned, AssignedPositions

COUNTED, SPREAD = EVALUATION_POSITIONS = ("counted", "spread")
SAMPLERS = ClassRegistry("--position-sampler", "how --random-positions draws positions")
#: Decorates a subclass of :class:`Sampler`.
register_sampler = SAMPLERS.register


class Sampler:
    """Draws random positions for a training batch."""

    #: True if the distances between tokens do not change, so that relative encodings are unaffected
    keeps_distances = False
    #: True if all sequences of a batch get the same positions
    same_rows = True
    #: True if :meth:`spread` is defined
    spreads = False

    def __init__(self, options: Options) -> None:
        self.number = int(options.random_positions)  # N

    def limit(self, length: int) -> int:
        """An exclusive upper bound on the positions that :meth:`draw` returns."""
        raise NotImplementedError

    def draw(self, length: int, rows: int, device: torch.device) -> Tensor:
        """Ascending positions (1|B, *length*), int64, that replace 0, 1, …, *length* - 1."""
        raise NotImplementedError

    def spread(self, length: int, sizes: Tensor) -> Tensor:
        """The mean (B, *length*) of :meth:`draw` for texts of *sizes* (B, 1) tokens, each >= 1."""
        raise NotImplementedError


@register_sampler(
    "ordered",
    paper="Ruoss et al. 2023, arXiv 2305.16843",
    summary="a sorted sample of 0 … N-1 without replacement, the same for all sequences",
)
class Ordered(Sampler):
    """A sorted random sample of 0 … N - 1.

    >>> from argparse import Namespace
    >>> _ = torch.manual_seed(1)
    >>> Ordered(Namespace(random_positions=100)).draw(4, 2, torch.device("cpu"))
    tensor([[15, 32, 45, 90]])
    """

    spreads = True

    def limit(self, length: int) -> int:
        """N.

        Raises:
            UsageError: *length* is larger than N.
        """
        if length > self.number:
            raise UsageError(
                f"--random-positions {self.number}: a sequence has {length} tokens; give at least "
                "the length of the longest sequence, or shorten the sequence"
            )
        return self.number

    def draw(self, length: int, rows: int, device: torch.device) -> Tensor:
        """See :class:`Sampler`."""
        return torch.randperm(self.number, device=device)[:length].sort().values.unsqueeze(0)

    def spread(self, length: int, sizes: Tensor) -> Tensor:
        """See :class:`Sampler`.

        >>> from argparse import Namespace
        >>> Ordered(Namespace(random_positions=100)).spread(4, torch.tensor([[4], [2]]))
        tensor([[19, 39, 60, 80],
                [33, 66, 99, 99]])
        """
        rank = torch.arange(1, length + 1, device=sizes.device)
        halves, doubled = sizes + 1, 2 * (sizes + 1)
        means = torch.div(2 * rank * (self.number + 1) + halves, doubled, rounding_mode="floor")
        return (means - 1).clamp(max=self.number - 1)  # only padding exceeds this


@register_sampler(
    "shift",
    paper="Kiyono et al. 2021, arXiv 2109.05644",
    summary="one random number from 0 to N added to all positions of a sequence (SHAPE)",
)
class Shift(Sampler):
    """Position p + k for token p, with one random k from 0 to N for each sequence."""

    keeps_distances = True
    same_rows = False

    def limit(self, length: int) -> int:
        """*length* + N."""
        return length + self.number

    def draw(self, length: int, rows: int, device: torch.device) -> Tensor:
        """See :class:`Sampler`."""
        shifts = torch.randint(self.number + 1, (rows, 1), device=device)
        return torch.arange(length, device=device) + shifts


def spreads(options: Options) -> bool:
    """Whether evaluation spreads positions; see :meth:`Sampler.spread`."""
    return bool(options.evaluation_positions == SPREAD)


def class_of_sampler(options: Options) -> Type[Sampler]:
    """The class that ``--position-sampler`` selects."""
    return SAMPLERS.find(options.position_sampler).thing


@register_replacement("random_positions", of=AssignedPositions)
class DrawnPositions(AssignedPositions):
    """In training, replaces positions (0, 1, 2, … or the positions of a rule) by random ones.

    With ``--evaluation-positions spread``, evaluation uses the means of the random positions.
    Arguments are those of the base class.
    """

    def __init__(self, options: Options, stack: Stack, dictionary: Dictionary) -> None:
        super().__init__(options, stack, dictionary)
        self.sampler, self.spreads = class_of_sampler(options)(options), spreads(options)
        # --untie-cls recognises [CLS] by position 0
        rule_keeps = self.rule is not None and self.rule.zero_is_none
        self.keep_zero = bool(options.untie_cls) or rule_keeps

    def refuse_cache(self) -> None:
        """Refuse a cache if positions are spread over the whole text."""
        if self.spreads:
            raise UsageError(
                "--evaluation-positions spread: positions depend on the length of the whole text, "
                "so nothing can be generated with a cache; for generation give --model-overrides "
                "\"{'evaluation_positions': 'counted'}\""
            )

    def of_batch(self, tokens: Tensor, counted: Tensor, training: bool) -> Optional[Assigned]:
        """Assign positions to a batch; arguments and result are those of the base class."""
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
