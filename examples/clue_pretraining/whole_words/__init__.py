"""``--user-dir`` of this recipe: ``--mask-whole-words`` for the symbols that prepare.sh makes.

It imports fairseq_posenc, which must be on PYTHONPATH; train.sh takes care of that.
"""

from dataclasses import dataclass
from typing import Any

from fairseq.data.encoders import register_bpe
from fairseq.dataclass import FairseqDataclass

from fairseq_posenc.serving.subwords import MARK, unmarked  # importing the package registers it

NAME = "marked_pieces"


@dataclass
class MarkedPiecesConfig(FairseqDataclass):
    """No settings: the mark is part of the symbol."""


@register_bpe(NAME, dataclass=MarkedPiecesConfig)
class MarkedPieces:
    """Finds beginnings of words and joins pieces, which `apply-subwords` makes, into words."""

    def __init__(self, cfg: Any) -> None:
        pass

    def is_beginning_of_word(self, symbol: str) -> bool:
        """True if a symbol of the dictionary is the first of its word."""
        return not symbol.startswith(MARK)

    def decode(self, line: str) -> str:
        """Return the words of a line of symbols, separated by spaces."""
        return unmarked(line)
