"""The registry of ``--position-ids``: rules by which tokens have other positions than 0, 1, 2, ….

A rule goes by the tokens before a token and the token itself, so that decoding with a cache, and
beam search, which reorders it, find the same positions again.
"""

from typing import (
    Any,
    Callable,
    ClassVar,
    Iterable,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Type,
    cast,
)

import torch
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError, flag_of
from fairseq_posenc.encodings.base import Encoding, Stack
from fairseq_posenc.encodings.random_positions import refuse_uncounted
from fairseq_posenc.flags.options import Options, option
from fairseq_posenc.flags.registry import ClassRegistry

FLAG = "--position-ids"
POSITION_RULES = ClassRegistry(FLAG)
#: Decorates a subclass of :class:`PositionRule`.
register_positions = POSITION_RULES.register


class Tokens(NamedTuple):
    """The tokens of a batch."""

    indices: Tensor  # numbers in the dictionary, (B, S)
    real: Tensor  # True but at padding, (B, S)


class Ruled(NamedTuple):
    """The positions of a batch, as a rule for position ids gives them."""

    table: Tensor  # rows at which a table added to the embeddings is read, (B, S), int64
    layers: Optional[Tensor]  # what attention is given, (B, S); None for 0, 1, 2, …

    def each(self, change: Callable[[Tensor], Tensor]) -> "Ruled":
        """Ruled with *change* applied to both tensors, or once where they are one tensor."""
        table = change(self.table)
        if self.layers is None or self.layers is self.table:
            return Ruled(table, None if self.layers is None else table)
        return Ruled(table, change(self.layers))

    def moved(self, drawn: Tensor) -> "Ruled":
        """The same with each position p, of (1|B, S), replaced by ``drawn[:, p]``, of (1|B, N)."""

        def move(positions: Tensor) -> Tensor:
            outer = max(len(drawn), len(positions))
            return drawn.expand(outer, -1).gather(1, positions.expand(outer, -1))

        return self.each(move)


class PositionRule:
    """Positions that follow from the tokens of a text.

    Args:
        options: the model configuration, complete.
        stack: the encoder or decoder.
        symbols: the dictionary: numbers of its symbols.

    Raises:
        UsageError: a symbol that the rule needs is not in the dictionary.
    """

    #: True if tokens at 0 have no position, which ``--random-positions`` leaves as it is
    zero_is_none: ClassVar[bool] = False
    #: True if the rule is for tables that are added to the embeddings, and needs one
    needs_table: ClassVar[bool] = False

    def __init__(self, options: Options, stack: Stack, symbols: Mapping[str, int]) -> None:
        self.stack = stack

    @classmethod
    def check(cls, options: Options, stack: Stack, name: str, encodings: List[Encoding]) -> None:
        """Refuse a stack or encodings that the rule is not for.

        Args:
            options: the model configuration, complete.
            stack: the encoder or decoder.
            name: value of ``--position-encoding`` for some of its layers.
            encodings: its encodings.

        Raises:
            UsageError: naming the flag.
        """
        if cls.needs_table and not any(e.input for e in encodings):
            raise UsageError(
                f"{FLAG} {options.position_ids}: its positions are added to the embeddings, and "
                f"--position-encoding {name} adds none; give learned+{name} or sinusoidal+{name}"
            )

    def places(self, tokens: Tokens) -> Ruled:
        """Positions of all tokens, from 0; those of padding do not matter."""
        raise NotImplementedError


def class_of_rule(value: str) -> Type[PositionRule]:
    """The class that a value of ``--position-ids`` names."""
    chosen: Any = POSITION_RULES.find(value).thing
    return cast(Type[PositionRule], chosen)


def rule_of(options: Options, stack: Stack, symbols: Mapping[str, int]) -> PositionRule:
    """The rule of ``--position-ids``; arguments as for :class:`PositionRule`."""
    return class_of_rule(options.position_ids)(options, stack, symbols)


def check_position_ids(
    options: Options, name: str, encodings: Iterable[Encoding], stack: Stack
) -> None:
    """Refuse ``--position-ids`` where the encodings are not given positions.

    Arguments and errors are those of :func:`.check_random_positions`.
    """
    if options.position_ids is None:
        return
    given, encodings = f"{FLAG} {options.position_ids}", list(encodings)
    refuse_uncounted(given, name, encodings)
    if options.untie_cls:
        raise UsageError(
            f"--untie-cls: [CLS] is known by its position 0, which others have under {given}; drop "
            "one of the two"
        )
    class_of_rule(options.position_ids).check(options, stack, name, encodings)


def numbers_of(options: Options, name: str, default: str, symbols: Mapping[str, int]) -> List[int]:
    """The numbers of the symbols in a setting, in order.

    Args:
        options: the model configuration.
        name: name of the setting, whose value is symbols separated by blanks.
        default: the value to use if the setting is None.
        symbols: the dictionary.

    Raises:
        UsageError: a symbol is not in the dictionary.
    """
    value = str(option(options, name) or default)
    return numbers_in(value, name, value.split(), symbols)


def numbers_in(value: str, name: str, wanted: List[str], symbols: Mapping[str, int]) -> List[int]:
    """The numbers of the symbols *wanted*.

    Args:
        value: the setting that they come from, for the message.
        name: name of that setting.
        symbols: the dictionary.

    Raises:
        UsageError: a symbol is not in the dictionary.
    """
    for symbol in wanted:
        if symbol not in symbols:
            raise UsageError(
                f"{flag_of(name)} {value!r}: {symbol!r} is not in the dictionary; give symbols as "
                "dict.txt has them, separated by blanks"
            )
    return [symbols[symbol] for symbol in wanted]


def among(indices: Tensor, numbers: List[int]) -> Tensor:
    """True where *indices* (B, S) are one of *numbers*."""
    found = torch.zeros_like(indices, dtype=torch.bool)
    for number in numbers:
        found = found | indices.eq(number)
    return found


def after(marks: Tensor) -> Tensor:
    """True at tokens after a mark (B, S).

    >>> after(torch.tensor([[False, True, False]]))
    tensor([[False, False,  True]])
    """
    return torch.cat((torch.zeros_like(marks[:, :1]), marks[:, :-1]), dim=1)


def last(marks: Tensor) -> Tensor:
    """Index of the last mark (B, S) up to each token, 0 where there is none.

    >>> last(torch.tensor([[False, True, False, True]]))
    tensor([[0, 1, 1, 3]])
    """
    index = torch.arange(marks.size(1), device=marks.device)
    return torch.where(marks, index, torch.zeros_like(index)).cummax(dim=1).values


def since(marks: Tensor) -> Tensor:
    """The number of tokens since the last mark (B, S).

    >>> since(torch.tensor([[True, False, False, True]]))
    tensor([[0, 1, 2, 0]])
    """
    return torch.arange(marks.size(1), device=marks.device) - last(marks)


def first(real: Tensor) -> Tensor:
    """True at the first real token of each sequence (B, S)."""
    return real & real.cumsum(dim=1).eq(1)
