"""Parameters shared by all formats of the ``transformers`` library: embeddings and output."""

from typing import Tuple

import torch

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.exchange.dictionary import Vocabulary
from fairseq_posenc.exchange.huggingface import Folder
from fairseq_posenc.exchange.kinds import EMBEDDING, LM_HEAD, SEGMENTS
from fairseq_posenc.exchange.reader import Reader

DECODER = "cls.predictions.decoder."


def token_embedding_of(prefix: str) -> str:
    """The name of the token embedding, *prefix* being that of the encoder."""
    return prefix + "embeddings.word_embeddings.weight"


def segment_embedding_of(prefix: str) -> str:
    """The name of the segment embedding, *prefix* being that of the encoder."""
    return prefix + "embeddings.token_type_embeddings.weight"


def reader_of(folder: Folder, vocabulary: Vocabulary, prefix: str) -> Reader:
    """A reader that has already moved the embeddings of tokens and segments.

    Args:
        folder: the folder.
        vocabulary: its vocabulary.
        prefix: prefix of the names in the encoder.
    """
    config, embedding = folder.config, token_embedding_of(prefix)
    reader = Reader(folder.weights, folder.parameters, vocabulary)
    reader.move_rows(embedding, EMBEDDING)
    rows = len(vocabulary.order)
    if config.size("vocab_size", rows) != rows:
        raise UsageError(
            f"{config.path}: vocab_size is {config.size('vocab_size')}, but {embedding} in "
            f"{folder.weights} has {rows} rows"
        )
    reader.move(segment_embedding_of(prefix), SEGMENTS)
    return reader


def move_output(folder: Folder, reader: Reader, prefix: str) -> bool:
    """Move the output weight of a model whose head is just that projection.

    Args:
        folder: the folder.
        reader: its parameters.
        prefix: prefix of the names in the encoder.

    Returns:
        whether it differs from the token embedding.

    Raises:
        UsageError: as :func:`has_own_output`.
    """
    weight = DECODER + "weight"
    own = has_own_output(folder, (weight, token_embedding_of(prefix))) and weight in reader
    if own:
        reader.move_rows(weight, LM_HEAD + "weight")
    reader.drop(weight)
    return own


def has_own_output(folder: Folder, *pairs: Tuple[str, str]) -> bool:
    """Check ``tie_word_embeddings``, and return whether it is off.

    Args:
        folder: the folder.
        pairs: names of tensors that must be equal if it is on.

    Raises:
        UsageError: it is on, but the tensors of a pair differ.
    """
    tied, tensors = folder.config.flag("tie_word_embeddings", True), folder.parameters
    for own, shared in pairs if tied else ():
        both = own in tensors and shared in tensors
        if both and not torch.equal(tensors[own].float(), tensors[shared].float()):
            raise UsageError(
                f"{folder.weights}: {own} and {shared} differ, though tie_word_embeddings in "
                "config.json is true; correct that entry or the weights"
            )
    return not tied
