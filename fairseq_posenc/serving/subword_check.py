"""Whether subwords are those of a model: of its dictionary, and of its data."""

import re
from typing import List, Sequence

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.serving.subwords import MARK, Subwords, unmarked

#: The marks that the symbols of some kinds have.
_MARKS = {
    "subword-nmt": re.compile(".+@@$"),
    "sentencepiece": re.compile("\u2581"),
    "marked-pieces or marked-words": re.compile(f"{MARK}."),
}
#: The largest share of symbols that may not fit.  The subwords of a model were measured at 0 to
#: 0.2 %; those of another text, or of another size, at 5 % or more.
_STRANGE = 0.03


def check_subwords(
    kind: str,
    subwords: Subwords,
    symbols: Sequence[str],
    texts: Sequence[List[str]],
    shown: str,
) -> None:
    """Refuse subwords that are not those of a model.

    Args:
        kind: one of :data:`~fairseq_posenc.serving.subwords.SUBWORDS`.
        subwords: what its entry in ``KINDS`` made.
        symbols: the symbols of the model's dictionary, without fairseq's own.
        texts: some of the model's data in symbols, or none.
        shown: the flag that sets the subwords, with its value.

    Raises:
        UsageError: many symbols of the dictionary cannot come from the subwords, or these split
            the texts into many that the dictionary does not have.
    """
    known, limit = set(symbols), _STRANGE * len(symbols)
    words = (lambda text: unmarked(" ".join(text))) if "marked" in kind else subwords.join
    again = [symbol for text in texts for symbol in subwords.split(words(text))]
    for split, fits, fault in (
        (symbols, subwords.makes, "of the dictionary's symbols are not among them"),
        (again, known.__contains__, "of the data, split by them, are not in the dictionary"),
    ):
        strange = [symbol for symbol in split if not fits(symbol)]
        if len(strange) > _STRANGE * len(split):
            instead = "those of the training"
            for theirs, mark in _MARKS.items():
                if kind not in theirs and sum(map(bool, map(mark.match, symbols))) > limit:
                    instead = f"--subwords {theirs} and its file"
            raise UsageError(
                f"{shown}: {len(strange) / len(split):.0%} {fault} "
                f"({', '.join(list(dict.fromkeys(strange))[:3])}); give {instead}, or "
                "--trust-subwords to pack these"
            )
