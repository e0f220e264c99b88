"""``--position-ids``: rules that assign positions other than 0, 1, 2, … to tokens.

The position of a token depends only on the token and on earlier ones, so that cached decoding and
beam search compute the same positions as a full forward pass.
"""

from dataclasses import dataclass
from typing import Callable, ClassVar, List, Mapping, NamedTuple, Optional, Type

import torch
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError, flag_of
from fairseq_posenc.encodings.base import Stack
from fairseq_posenc.encodings.registry import ENCODINGS, Encoding
from fairseq_posenc.flags.options import Options, option
from fairseq_posenc.flags.registry import ClassRegistry
from fairseq_posenc.flags.settings import setting

FLAG = "--position-ids"
POSITION_RULES = ClassRegistry(FLAG, "positions other than 0, 1, 2 and so on")
#: Decorates a subclass of :class:`PositionRule`.
register_positions = POSITION_RULES.register


def takers_of_positions() -> List[str]:
    """The encodings that accept positions other than 0, 1, 2, …."""
    return [entry.name for entry in ENCODINGS.values() if entry.takes_positions]


@dataclass
class PositionFlags:
    """The flag that replaces positions 0, 1, 2, …."""

    position_ids: Optional[str] = setting(
        None,
        "positions other than 0, 1, 2 and so on: {choices}",
        choices=POSITION_RULES,
        needs={"position_encoding": takers_of_positions},
        traceable=(None,),
    )


class Tokens(NamedTuple):
    """The tokens of a batch."""

    indices: Tensor  # token ids, (B, S)
    real: Tensor  # (B, S), False at padding


class Ruled(NamedTuple):
    """The positions that a rule assigns to a batch."""

    table: Tensor  # position of each token in the table added to embeddings, (1|B, S), int64
    layers: Optional[Tensor]  # positions in attention, (1|B, S); None for 0, 1, 2, …

    def each(self, change: Callable[[Tensor], Tensor]) -> "Ruled":
        """Apply *change* to both tensors; only once if both are the same tensor."""
        table = change(self.table)
        if self.layers is None or self.layers is self.table:
            return Ruled(table, None if self.layers is None else table)
        return Ruled(table, change(self.layers))

    def moved(self, drawn: Tensor) -> "Ruled":
        """Replace each position p by ``drawn[:, p]``; *drawn* is (1|B, N)."""

        def move(positions: Tensor) -> Tensor:
            outer = max(len(drawn), len(positions))
            return drawn.expand(outer, -1).gather(1, positions.expand(outer, -1))

        return self.each(move)


class PositionRule:
    """Base of rules that compute positions from the tokens of a text.

    Raises:
        UsageError: a symbol that the rule needs is not in the dictionary.
    """

    #: True if position 0 means "no position", so that random positions leave it unchanged
    zero_is_none: ClassVar[bool] = False
    #: True if the rule needs a table that is added to the embeddings
    needs_table: ClassVar[bool] = False

    def __init__(self, options: Options, stack: Stack, symbols: Mapping[str, int]) -> None:
        self.stack = stack

    @classmethod
    def check(cls, options: Options, stack: Stack, name: str, encodings: List[Encoding]) -> None:
        """Refuse a stack, or *encodings* of its layers, for which the rule is not defined."""
        if cls.needs_table and not any(e.input for e in encodings):
            raise UsageError(
                f"{FLAG} {options.position_ids}: its positions are added to the embeddings, and "
                f"--position-encoding {name} adds none; give learned+{name} or sinusoidal+{name}"
            )

    def places(self, tokens: Tokens) -> Ruled:
        """Positions of all tokens, from 0; positions of padding have no effect."""
        raise NotImplementedError


def class_of_rule(value: str) -> Type[PositionRule]:
    """The class that a value of ``--position-ids`` names."""
    return POSITION_RULES.find(value).thing


def check_position_ids(
    options: Options, name: str, encodings: List[Encoding], stack: Stack
) -> None:
    """Refuse ``--position-ids`` with encodings that do not use positions."""
    flag = f"{FLAG} {options.position_ids}"
    refuse_uncounted(flag, name, encodings)
    if options.untie_cls:
        raise UsageError(
            f"--untie-cls: [CLS] is recognised by its position 0, which other tokens also have "
            f"under {flag}; drop one of the two flags"
        )
    class_of_rule(options.position_ids).check(options, stack, name, encodings)


def refuse_uncounted(flag: str, name: str, encodings: List[Encoding]) -> None:
    """Refuse encodings that do not use assigned positions."""
    for encoding in encodings:
        if not encoding.takes_positions and encoding.content:
            raise UsageError(
                f"{flag}: {encoding.name} in --position-encoding {name} uses the order of "
                "tokens, not positions; drop the flag, or give an encoding such as rotary, alibi "
                "or t5"
            )


def numbers_of(
    options: Options,
    name: str,
    default: str,
    symbols: Mapping[str, int],
    chosen: Optional[List[str]] = None,
) -> List[int]:
    """The ids of *chosen*, by default all symbols in the setting *name* or, if unset, *default*."""
    value = str(option(options, name) or default)
    chosen = value.split() if chosen is None else chosen
    for symbol in chosen:
        if symbol not in symbols:
            raise UsageError(
                f"{flag_of(name)} {value!r}: {symbol!r} is not in the dictionary; give symbols as "
                "dict.txt has them, separated by blanks"
            )
    return [symbols[symbol] for symbol in chosen]


def among(indices: Tensor, numbers: List[int]) -> Tensor:
    """True where *indices* (B, S) are in *numbers*."""
    matches = torch.zeros_like(indices, dtype=torch.bool)
    for number in numbers:
        matches = matches | indices.eq(number)
    return matches


def after(marks: Tensor) -> Tensor:
    """True at tokens that follow a mark directly, for *marks* (B, S).

    >>> after(torch.tensor([[False, True, False]]))
    tensor([[False, False,  True]])
    """
    return torch.cat((torch.zeros_like(marks[:, :1]), marks[:, :-1]), dim=1)


def last(marks: Tensor) -> Tensor:
    """Index of the last mark up to each token, 0 if there is none, for *marks* (B, S).

    >>> last(torch.tensor([[False, True, False, True]]))
    tensor([[0, 1, 1, 3]])
    """
    index = torch.arange(marks.size(1), device=marks.device)
    return torch.where(marks, index, torch.zeros_like(index)).cummax(dim=1).values


def since(marks: Tensor) -> Tensor:
    """The number of tokens since the last mark, for *marks* (B, S).

    >>> since(torch.tensor([[True, False, False, True]]))
    tensor([[0, 1, 2, 0]])
    """
    return torch.arange(marks.size(1), device=marks.device) - last(marks)


def first(real: Tensor) -> Tensor:
    """True at the first real token of each sequence (B, S)."""
    return real & real.cumsum(dim=1).eq(1)


@dataclass
class SeparatorFlags:
    """The flag of all rules that divide a text."""

    position_separators: Optional[str] = setting(
        None,
        "dictionary symbols, separated by blanks, at which --position-ids and --document-mask "
        "divide a text, depending on the rule: ends of documents (default: </s>, end of line; give "
        "</s></s> if empty lines separate documents), ends of segments (default: a full stop), or "
        "operators, the last of which begins the answer (default: '+ =')",
    )


@register_positions(
    "documents",
    paper="Krell et al. 2021, arXiv 2107.02027",
    summary="0, 1, 2, … in each document of a text",
    flags=SeparatorFlags,
)
class DocumentPositions(PositionRule):
    """Positions that start again after each separator.

    In a decoder, whose input is its target shifted by one, a separator begins the next document and
    has position 0; in an encoder, it ends a document.  One symbol written twice separates documents
    where the symbol follows itself: ``</s></s>`` at empty lines.
    """

    def __init__(self, options: Options, stack: Stack, symbols: Mapping[str, int]) -> None:
        super().__init__(options, stack, symbols)
        name, usual = "position_separators", "</s>"
        value = str(option(options, name) or usual).split()
        twice = [s for s in value if s == 2 * s[: len(s) // 2] and s not in symbols]
        once = [symbol for symbol in value if symbol not in twice]
        self.once = numbers_of(options, name, usual, symbols, once)
        halves = [symbol[: len(symbol) // 2] for symbol in twice]
        self.repeated = numbers_of(options, name, usual, symbols, halves)

    def begins(self, tokens: Tokens) -> Tensor:
        """True at the first token of each document (B, S)."""
        lines = among(tokens.indices, self.repeated)
        follows = after(lines) & tokens.indices.eq(tokens.indices.roll(1, dims=1))
        ends = among(tokens.indices, self.once) | follows
        return first(tokens.real) | (ends if self.stack.side == "decoder" else after(ends))

    def places(self, tokens: Tokens) -> Ruled:
        """See :class:`PositionRule`."""
        positions = since(self.begins(tokens))
        return Ruled(positions, positions)
