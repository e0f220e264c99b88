"""``--user-dir`` of this recipe: fairseq_posenc, and ``--mask-whole-words`` for its symbols."""

from dataclasses import dataclass
from typing import Any

from fairseq.data.encoders import register_bpe
from fairseq.dataclass import FairseqDataclass

import fairseq_posenc  # noqa: F401  importing it registers it

NAME = "marked_pieces"
MARK = "##"


@dataclass
class MarkedPiecesConfig(FairseqDataclass):
    """No settings: the mark is part of the symbol."""


@register_bpe(NAME, dataclass=MarkedPiecesConfig)
class MarkedPieces:
    """Finds beginnings of words, and joins the symbols of marked.py to words."""

    def __init__(self, cfg: Any) -> None:
        pass

    def is_beginning_of_word(self, symbol: str) -> bool:
        """True if a symbol of the dictionary is the first of its word."""
        return not symbol.startswith(MARK)

    def decode(self, line: str) -> str:
        """Return the words of a line of symbols, separated by spaces."""
        return line.replace(f" {MARK}", "")
