"""Rules of ``--position-ids`` for texts with segments or with numbers.

    segments   BiPE, He et al., arXiv 2401.16421, section 3: the input table encodes the position
               inside a segment, the relative encoding the index of the segment
    digits     Abacus, McLeish et al., arXiv 2405.17399, section 3.1: the input table encodes the
               position of a digit in its number, from 1, or 0 for other tokens
    coupling   position coupling, Cho et al., arXiv 2405.20671, section 3: digits of the same
               significance share a position; operands must have equally many digits, and the answer
               must begin with its last digit

The papers train ``digits`` and ``coupling`` with a random offset: ``--random-positions N
--position-sampler shift`` shifts all positions but 0.
"""

from dataclasses import dataclass
from typing import List, Mapping, Optional

import torch

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.encodings import Encoding
from fairseq_posenc.encodings.base import Stack
from fairseq_posenc.encodings.position_ids import (
    FLAG,
    PositionRule,
    Ruled,
    SeparatorFlags,
    Tokens,
    after,
    among,
    first,
    last,
    numbers_of,
    register_positions,
    since,
)
from fairseq_posenc.flags.options import Options
from fairseq_posenc.flags.settings import setting


@dataclass
class DigitFlags:
    """The flag of the rule ``digits``."""

    position_digits: Optional[str] = setting(
        "0 1 2 3 4 5 6 7 8 9",
        "the digits that form numbers, separated by blanks, for --position-ids digits",
    )


@register_positions(
    "segments",
    paper="He et al. 2024, arXiv 2401.16421",
    summary="a table inside segments, and a relative encoding between segments (BiPE)",
    flags=SeparatorFlags,
)
class Segments(PositionRule):
    """For the input table, positions inside a segment; for layers, the index of the segment."""

    needs_table = True

    def __init__(self, options: Options, stack: Stack, symbols: Mapping[str, int]) -> None:
        super().__init__(options, stack, symbols)
        self.separators = numbers_of(options, "position_separators", ".", symbols)

    @classmethod
    def check(cls, options: Options, stack: Stack, name: str, encodings: List[Encoding]) -> None:
        """Refuse compositions other than a table and relative encodings."""
        super().check(options, stack, name, encodings)
        others = [e for e in encodings if not e.input]
        if not others or not all(e.is_relative(options) for e in others):
            raise UsageError(
                f"{FLAG} segments: --position-encoding {name} must be a table for positions inside "
                "a segment, and a relative encoding between segments; give for example "
                "sinusoidal+rotary or learned+alibi"
            )

    def places(self, tokens: Tokens) -> Ruled:
        """See :class:`PositionRule`."""
        begins = first(tokens.real) | after(among(tokens.indices, self.separators))
        return Ruled(since(begins), begins.cumsum(dim=1).sub(1).clamp(min=0))


@register_positions(
    "digits",
    paper="McLeish et al. 2024, arXiv 2405.17399",
    summary="a table for the position of each digit in its number (Abacus)",
    flags=DigitFlags,
)
class Digits(PositionRule):
    """Positions 1, 2, … for the digits of a number from the first on, and 0 for other tokens."""

    zero_is_none = needs_table = True

    def __init__(self, options: Options, stack: Stack, symbols: Mapping[str, int]) -> None:
        super().__init__(options, stack, symbols)
        self.digits = numbers_of(options, "position_digits", "", symbols)

    def places(self, tokens: Tokens) -> Ruled:
        """See :class:`PositionRule`."""
        digits = among(tokens.indices, self.digits)
        places = since(digits & ~after(digits)) + 1
        return Ruled(places.masked_fill(~digits, 0), None)


@register_positions(
    "coupling",
    paper="Cho et al. 2024, arXiv 2405.20671",
    summary="one position for all digits of the same significance in operands and answer",
    flags=SeparatorFlags,
)
class Coupling(PositionRule):
    """Positions 2, 3, …, n + 1 for the n digits of an operand, and n + 2 for operators after it.

    The last symbol of ``--position-separators`` begins the answer, whose positions go down: n + 1,
    n, and so on.  Each ``</s>``, which separates documents, has position 0.
    """

    zero_is_none = True

    def __init__(self, options: Options, stack: Stack, symbols: Mapping[str, int]) -> None:
        super().__init__(options, stack, symbols)
        *self.operators, self.answer = numbers_of(options, "position_separators", "+ =", symbols)
        self.end = symbols["</s>"]  # every dictionary of fairseq has it

    @classmethod
    def check(cls, options: Options, stack: Stack, name: str, encodings: List[Encoding]) -> None:
        """Refuse stacks that are not causal."""
        super().check(options, stack, name, encodings)
        if not stack.causal:
            raise UsageError(
                f"{FLAG} coupling: is for language models, which read a question and its answer as "
                f"one text, and this {stack.side} sees later tokens; reverse the operands, and "
                f"give {FLAG} documents --position-separators '+ ='"
            )

    def places(self, tokens: Tokens) -> Ruled:
        """See :class:`PositionRule`."""
        answers, ends = tokens.indices.eq(self.answer), tokens.indices.eq(self.end)
        marks = ends | answers | among(tokens.indices, self.operators)
        # adjacent operators share the position that follows the operand before them
        up = since(first(tokens.real) | (after(marks) & ~marks)) + 2
        up = torch.where(marks, up.gather(1, last(marks & ~after(marks))), up)
        at = last(marks)
        down = up.gather(1, at) - since(marks)
        positions = torch.where(answers.gather(1, at) & ~answers, down, up).clamp(min=0)
        positions = positions.masked_fill(ends, 0)
        return Ruled(positions, positions)
