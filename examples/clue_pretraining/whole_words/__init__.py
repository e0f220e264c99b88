"""``--user-dir`` of this recipe: fairseq_posenc, and a ``--bpe`` for ``--mask-whole-words``."""

from dataclasses import dataclass
from typing import Any

from fairseq.data.encoders import register_bpe
from fairseq.dataclass import FairseqDataclass

import fairseq_posenc  # noqa: F401  the import registers the plug-in

NAME = "marked_pieces"
MARK = "##"


@dataclass
class MarkedPiecesConfig(FairseqDataclass):
    """No settings: whether a symbol has the mark can be read from the symbol itself."""


@register_bpe(NAME, dataclass=MarkedPiecesConfig)
class MarkedPieces:
    """Says which symbols begin words, and joins the symbols of marked.py into words."""

    def __init__(self, cfg: Any) -> None:
        pass

    def is_beginning_of_word(self, symbol: str) -> bool:
        """True if a symbol of the dictionary begins a word."""
        return not symbol.startswith(MARK)

    def decode(self, line: str) -> str:
        """Return the words of a line of symbols, separated by spaces."""
        return line.replace(f" {MARK}", "")
