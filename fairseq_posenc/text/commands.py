"""What the commands that prepare text map lines by, and the preparation that a recipe recorded."""

import os
from typing import Optional

from fairseq_posenc.basics.lines import read_lines
from fairseq_posenc.exchange.huggingface import tokenizer
from fairseq_posenc.serving.preparation import Preparation, Text
from fairseq_posenc.serving.subwords import BYTES, RAW
from fairseq_posenc.serving.words import joiner_of, words_of
from fairseq_posenc.text.parallel import Function, each


def recorded(folder: str) -> Optional[Text]:
    """The preparation that a recipe has recorded in the file ``text`` of a data folder.

    Args:
        folder: the data folder, which also has the subwords: ``tokenizer``, ``bpe.codes``,
            ``sentencepiece.model`` or ``words.txt``.

    Returns:
        the preparation with the path of the subwords; None if the folder does not say it.
    """
    record = os.path.join(folder, "text")
    lines = read_lines(record) if os.path.isfile(record) else ()
    said = {name: value for name, _, value in (line.partition(" ") for line in lines)}
    if said.get("kind") in BYTES:
        return Text(subwords=said["kind"])
    if os.path.isdir(os.path.join(folder, "tokenizer")):
        return Text(subwords="transformers", subword_file=os.path.join(folder, "tokenizer"))
    kind, segmenter, tokenizer, lang = said.get("subwords"), said.get("segmenter"), "none", None
    file = {"sentencepiece": "sentencepiece.model", "marked-words": "words.txt"}.get(str(kind))
    if file is None:
        file, kind = "bpe.codes", "marked-pieces" if segmenter else "subword-nmt"
    if kind == "subword-nmt":
        tokenizer, lang = "moses", said.get("lang")
    elif kind != "sentencepiece" and segmenter != "spaces":
        tokenizer = segmenter or "jieba"
    path = os.path.join(folder, file)
    if not os.path.isfile(path):
        return Text() if said.get("kind") == "wikitext" else None
    return Text(lang, None, tokenizer, False, str(kind), path, not said.get("keep-case"))


def splitter(text: Text) -> Function:
    """The function that splits lines into tokens, separated by spaces.

    Args:
        text: the preparation, with the path of the subwords.
    """
    split = Preparation(text).source
    return each(lambda line: " ".join(split(line)))


def tokens_joiner(text: Text) -> Function:
    """The function that joins lines of tokens to words, separated by spaces.

    Args:
        text: the preparation, with the path of the subwords.
    """
    words = Preparation(text).words
    if text.subwords in RAW:
        return each(lambda line: words(line.split()))
    return each(lambda line: " ".join(words(line.split()).split()))


def word_splitter(
    tokenizer: str, lang: Optional[str], dash_splits: bool, lowercase: bool
) -> Function:
    """The function that splits lines into words, separated by spaces; see :func:`words_of`."""
    split = words_of(tokenizer, lang, dash_splits, lowercase)
    return each(lambda line: " ".join(split(line)))


def word_joiner(lang: str) -> Function:
    """The function that restores plain text of lines of Moses' words."""
    join = joiner_of("moses", lang)
    return each(lambda line: join(line.split()))


def symbol_splitter(folder: str) -> Function:
    """The function that splits lines by the tokenizer in a folder, separated by spaces."""
    split = tokenizer.load(folder).split
    return lambda lines: [" ".join(split(line)) for line in lines]
