"""Positions that start again after each comma."""

from typing import Any, Mapping

from fairseq_posenc.encodings import PositionRule, Stack, register_positions
from fairseq_posenc.encodings.position_ids import Ruled, Tokens, among, first, since


@register_positions("clauses", paper="", summary="0, 1, 2, … in each clause")
class Clauses(PositionRule):
    """The number of tokens since the last comma; arguments as for the base class."""

    def __init__(self, options: Any, stack: Stack, symbols: Mapping[str, int]) -> None:
        super().__init__(options, stack, symbols)
        self.commas = [number for symbol, number in symbols.items() if symbol.endswith(",")]

    def places(self, tokens: Tokens) -> Ruled:
        """Positions (B, S), the same for the input table and for the layers."""
        found = since(first(tokens.real) | among(tokens.indices, self.commas))
        return Ruled(found, found)
