"""Temporary: the preparation of a model folder's text."""

from fairseq_posenc.serving.model_folder import ModelFolder
from fairseq_posenc.text import preparation
from fairseq_posenc.text.words import joiner_of as joiner_of
from fairseq_posenc.text.words import words_of as words_of


def Preparation(folder: ModelFolder) -> preparation.Preparation:
    """The preparation of a folder's text."""
    return preparation.Preparation(folder.text, folder.path)
