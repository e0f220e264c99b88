"""The rule ``--position-ids documents``: positions start again with each document of a text."""

from dataclasses import dataclass
from typing import Mapping, Optional

from torch import Tensor

from fairseq_posenc.encodings.base import Stack
from fairseq_posenc.encodings.position_ids import (
    PositionRule,
    Ruled,
    Tokens,
    after,
    among,
    first,
    numbers_of,
    register_positions,
    since,
)
from fairseq_posenc.flags.options import Options, option
from fairseq_posenc.flags.settings import setting


@dataclass
class SeparatorFlags:
    """The flag of rules that divide a text."""

    position_separators: Optional[str] = setting(
        None,
        "symbols of the dictionary, separated by blanks, that --position-ids and --document-mask "
        "go by: ends of documents (default: </s>, the end of a line; </s></s> for empty lines) or "
        "segments (default: a full stop), or operators, the last of which begins the answer "
        "(default: '+ =')",
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
    has position 0; in an encoder it ends a document.  A symbol written twice, ``</s></s>``,
    separates where it follows itself: at empty lines.
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
