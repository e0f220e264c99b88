"""``--user-dir`` of this recipe: ``--mask-whole-words`` for the symbols that prepare.sh makes.

It imports fairseq_posenc, which must be on PYTHONPATH; train.sh takes care of that.
"""

from dataclasses import dataclass
from typing import Any, Optional

from fairseq.data.encoders import register_bpe
from fairseq.dataclass import FairseqDataclass
from fairseq.tasks.masked_lm import MaskedLMTask

import fairseq_posenc  # noqa: F401
from fairseq_posenc.errors import UsageError

NAME = "marked_pieces"
MARK = "##"  # as in pieces.py


@dataclass
class MarkedPiecesConfig(FairseqDataclass):
    """No settings: the mark is part of the symbol."""


@register_bpe(NAME, dataclass=MarkedPiecesConfig)
class MarkedPieces:
    """Finds beginnings of words and joins pieces into words; pieces.py splits the text."""

    def __init__(self, cfg: Any) -> None:
        pass

    def is_beginning_of_word(self, symbol: str) -> bool:
        """True if a symbol of the dictionary is the first of its word."""
        return not symbol.startswith(MARK)

    def decode(self, line: str) -> str:
        """Return the words of a line of symbols, separated by spaces."""
        return line.replace(f" {MARK}", "")


class _FlagsOfBPE:
    """The attribute ``args`` from which MaskedLMTask builds its ``--bpe``.

    fairseq 0.12.2 and fairseq-fixed read ``self.args`` for ``--mask-whole-words`` and never set
    it, so that flag fails with "no attribute 'args'". The flags of ``--bpe`` are outside the task's
    configuration.
    """

    def __get__(self, task: Optional[MaskedLMTask], owner: Any = None) -> Any:
        if task is None:
            return self
        parent = task.cfg._get_parent()
        flags = None if parent is None else parent.get("bpe")
        if flags is None or flags.get("_name") is None:
            raise UsageError(
                f"--mask-whole-words: needs --bpe to find beginnings of words, for example {NAME}"
            )
        return flags


if not hasattr(MaskedLMTask, "args"):
    MaskedLMTask.args = _FlagsOfBPE()
