"""Checks of texts that are given from Python."""

from typing import Sequence

from torch import Tensor

from fairseq_posenc.basics.errors import UsageError


def check_texts(texts: object, function: str) -> None:
    """Refuse anything but a list of texts, or of pairs; a text would be taken for its characters.

    Raises:
        UsageError: naming the function.
    """
    if isinstance(texts, (str, bytes)) or not isinstance(texts, Sequence):
        raise UsageError(f"{function}: takes a list of texts; write [text] for a single one")
    for number, text in enumerate(texts):
        parts = text if isinstance(text, (tuple, list)) else [text]
        if not all(isinstance(part, str) for part in parts):
            raise UsageError(f"{function}: element {number} of the list is {text!r}, and no text")


def refuse_too_long(texts: Sequence[Tensor], longest: int, function: str) -> None:
    """Refuse texts that the model does not accept.

    Args:
        texts: numbers of tokens (T,) of each.
        longest: the largest T.
        function: for the message.

    Raises:
        UsageError: naming the first by its number in the list.
    """
    for number, text in enumerate(texts):
        if len(text) > longest:
            raise UsageError(
                f"{function}: text {number} of the list has {len(text)} tokens, and the model "
                f"accepts {longest}; split it"
            )
