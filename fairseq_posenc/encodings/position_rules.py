"""The rules of ``--position-ids``.

    documents  positions start again with each document of a text
    segments   BiPE, He et al., arXiv 2401.16421, section 3: tables that are added to the embeddings
               get the position inside a segment, relative encodings the number of the segment
    digits     Abacus, McLeish et al., arXiv 2405.17399, section 3.1: tables get the place of a
               digit in its number, from 1, and 0 for other tokens
    coupling   position coupling, Cho et al., arXiv 2405.20671, section 3: digits of the same
               significance share a position, for operands of equally many digits and an answer
               that begins with its last digit

The papers train ``digits`` and ``coupling`` from a random position on: ``--random-positions N
--position-sampler shift`` moves all positions but 0.
"""

from argparse import Namespace
from dataclasses import dataclass
from typing import List, Mapping, Optional

import torch
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.encodings.base import Encoding, Stack
from fairseq_posenc.encodings.position_ids import (
    FLAG,
    PositionRule,
    Ruled,
    Tokens,
    after,
    among,
    first,
    last,
    numbers_in,
    numbers_of,
    register_positions,
    since,
)
from fairseq_posenc.flags.options import Options, option
from fairseq_posenc.flags.settings import setting


@dataclass
class SeparatorFlags:
    """The flag of the rules that divide a text."""

    position_separators: Optional[str] = setting(
        None,
        "symbols of the dictionary, separated by blanks, that --position-ids and --document-mask "
        "go by: ends of documents (default: </s>, the end of a line; </s></s> for empty lines) or "
        "segments (default: a full stop), or operators, the last of which begins the answer "
        "(default: '+ =')",
        role="model",
        or_with={"document_mask": None},
    )


@dataclass
class DocumentFlags:
    """The flag of packed samples."""

    document_mask: Optional[bool] = setting(
        False,
        "compute each document of a sample as if it were alone: attention stays within it, and "
        "positions start again; documents end as --position-separators says",
        role="free",
    )


@dataclass
class DigitFlags:
    """The flag of the rule for numbers."""

    position_digits: Optional[str] = setting(
        "0 1 2 3 4 5 6 7 8 9",
        "symbols that numbers are made of, separated by blanks, for --position-ids digits",
        role="model",
    )


@register_positions(
    "documents",
    paper="Krell et al. 2021, arXiv 2107.02027",
    summary="0, 1, 2, … in each document of a text",
    flags=SeparatorFlags,
)
class Documents(PositionRule):
    """Start again after each separator.

    In a decoder, whose input is what it has to predict moved by one, a separator is the beginning
    of the next document and has position 0; in an encoder it is the end of one.  A symbol that is
    written twice, ``</s></s>``, separates where it follows itself: at empty lines.
    """

    def __init__(self, options: Options, stack: Stack, symbols: Mapping[str, int]) -> None:
        super().__init__(options, stack, symbols)
        value = str(option(options, "position_separators") or "</s>")
        halves = {symbol: symbol[: len(symbol) // 2] for symbol in value.split()}
        twice = [s for s, half in halves.items() if s == 2 * half and s not in symbols]
        once = [symbol for symbol in halves if symbol not in twice]
        self.once = numbers_in(value, "position_separators", once, symbols)
        repeated = [halves[symbol] for symbol in twice]
        self.repeated = numbers_in(value, "position_separators", repeated, symbols)

    def begins(self, tokens: Tokens) -> Tensor:
        """True at the first token of each document (B, S)."""
        lines = among(tokens.indices, self.repeated)
        follows = after(lines) & tokens.indices.eq(tokens.indices.roll(1, dims=1))
        ends = among(tokens.indices, self.once) | follows
        return first(tokens.real) | (ends if self.stack.side == "decoder" else after(ends))

    def places(self, tokens: Tokens) -> Ruled:
        """See :class:`PositionRule`."""
        found = since(self.begins(tokens))
        return Ruled(found, found)


def documents_of(options: Options, stack: Stack, symbols: Mapping[str, int]) -> Documents:
    """The documents of ``--document-mask``; arguments as for :class:`.PositionRule`.

    Separators that are given for another rule divide no documents.
    """
    if option(options, "position_ids") not in (None, "documents"):
        options = Namespace(position_separators=None)
    return Documents(options, stack, symbols)


@register_positions(
    "segments",
    paper="He et al. 2024, arXiv 2401.16421",
    summary="a table inside a segment, and relative encodings between segments (BiPE)",
    flags=SeparatorFlags,
)
class Segments(PositionRule):
    """Positions inside a segment for the table, and the number of the segment for the layers."""

    needs_table = True

    def __init__(self, options: Options, stack: Stack, symbols: Mapping[str, int]) -> None:
        super().__init__(options, stack, symbols)
        self.separators = numbers_of(options, "position_separators", ".", symbols)

    @classmethod
    def check(cls, options: Options, stack: Stack, name: str, encodings: List[Encoding]) -> None:
        """Refuse compositions of anything but a table and relative encodings."""
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
    summary="a table of the places of digits in their numbers (Abacus)",
    flags=DigitFlags,
)
class Digits(PositionRule):
    """1, 2, … for the digits of a number from its first on, and 0 for other tokens."""

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
    summary="one position for the digits of the same significance in operands and answer",
    flags=SeparatorFlags,
)
class Coupling(PositionRule):
    """2, 3, … n + 1 for the n digits of each operand, n + 2 for the operators after it.

    Positions go down again after the last kind of operator: n + 1, n, … for the answer.  Each
    separator of documents, ``</s>``, has 0.
    """

    zero_is_none = True

    def __init__(self, options: Options, stack: Stack, symbols: Mapping[str, int]) -> None:
        super().__init__(options, stack, symbols)
        *self.operators, self.answer = numbers_of(options, "position_separators", "+ =", symbols)
        self.end = symbols["</s>"]  # every dictionary of fairseq's has it

    @classmethod
    def check(cls, options: Options, stack: Stack, name: str, encodings: List[Encoding]) -> None:
        """Refuse stacks that do not read a question and write its answer."""
        super().check(options, stack, name, encodings)
        if not stack.causal:
            raise UsageError(
                f"{FLAG} coupling: is for language models, which read a question and its answer as "
                f"one text, and this {stack.side} sees later tokens; with both numbers reversed, "
                f"give {FLAG} documents --position-separators '+ ='"
            )

    def places(self, tokens: Tokens) -> Ruled:
        """See :class:`PositionRule`."""
        answers, ends = tokens.indices.eq(self.answer), tokens.indices.eq(self.end)
        marks = ends | answers | among(tokens.indices, self.operators)
        # an operator belongs to the operand before it, and others next to it have the same
        up = since(first(tokens.real) | (after(marks) & ~marks)) + 2
        up = torch.where(marks, up.gather(1, last(marks & ~after(marks))), up)
        at = last(marks)
        down = up.gather(1, at) - since(marks)
        found = torch.where(answers.gather(1, at) & ~answers, down, up).clamp(min=0)
        found = found.masked_fill(ends, 0)
        return Ruled(found, found)
