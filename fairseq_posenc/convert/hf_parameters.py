"""Parameters that all formats of the ``transformers`` library share: embeddings and output."""

from typing import Tuple

import torch

from fairseq_posenc.convert.dictionary import Vocabulary
from fairseq_posenc.convert.huggingface import Folder
from fairseq_posenc.convert.native import EMBEDDING, LM_HEAD, SEGMENTS
from fairseq_posenc.convert.reader import Reader
from fairseq_posenc.errors import UsageError

DECODER = "cls.predictions.decoder."


def words_of(prefix: str) -> str:
    """The name of the token embedding, *prefix* being that of the encoder."""
    return prefix + "embeddings.word_embeddings.weight"


def segments_of(prefix: str) -> str:
    """The name of the segment embedding, *prefix* being that of the encoder."""
    return prefix + "embeddings.token_type_embeddings.weight"


def reader_of(folder: Folder, vocabulary: Vocabulary, prefix: str) -> Reader:
    """A reader that has taken over the embeddings of tokens and segments.

    Args:
        folder: the folder.
        vocabulary: its vocabulary.
        prefix: what the names in the encoder start with.
    """
    reader = Reader(folder.weights, folder.parameters, vocabulary)
    reader.move_rows(words_of(prefix), EMBEDDING)
    reader.move(segments_of(prefix), SEGMENTS)
    return reader


def move_output(folder: Folder, reader: Reader, prefix: str) -> bool:
    """Take over the output weight of a model that has no more than that on its last states.

    Args:
        folder: the folder.
        reader: its parameters.
        prefix: what the names in the encoder start with.

    Returns:
        whether it is another than the token embedding.

    Raises:
        UsageError: as :func:`has_own_output`.
    """
    weight = DECODER + "weight"
    own = has_own_output(folder, (weight, words_of(prefix))) and weight in reader
    if own:
        reader.move_rows(weight, LM_HEAD + "weight")
    reader.drop(weight)
    return own


def has_own_output(folder: Folder, *pairs: Tuple[str, str]) -> bool:
    """Whether ``tie_word_embeddings`` is off.

    Args:
        folder: the folder.
        pairs: tensors that are the same if it is on.

    Raises:
        UsageError: it is on, and the two tensors of a pair differ.
    """
    tied, tensors = folder.config.get("tie_word_embeddings", True), folder.parameters
    for own, shared in pairs if tied else ():
        if own in tensors and shared in tensors and not torch.equal(tensors[own], tensors[shared]):
            raise UsageError(
                f"{folder.weights}: {own} and {shared} differ, though tie_word_embeddings in "
                "config.json is true; say there which of the two holds"
            )
    return not tied
