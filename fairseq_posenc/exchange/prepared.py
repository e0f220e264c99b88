"""The preparation of a model's text, as a model folder or flags say it."""

import os
from typing import Optional, Tuple

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.exchange.formats import Flag, Wanted
from fairseq_posenc.exchange.huggingface.tokenizers.splitters import Subwords
from fairseq_posenc.exchange.native import SEARCH
from fairseq_posenc.serving.model_folder import CHECKPOINT, Search, read_model_folder
from fairseq_posenc.serving.preparation import Text
from fairseq_posenc.serving.subwords import SUBWORD_FILES, SUBWORDS

ABOUT = Flag("about", "a sentence on the data, for the card", "TEXT")
#: The flags of an exporter that writes a card.
CARD_FLAGS = (ABOUT, Flag("scores", "texts with scores, for the card", "FILE", nargs="+"))
#: How text was prepared.
SUBWORD_FLAGS = (
    Flag("text_of", "the folder of a packed model that says how text was prepared", "FOLDER"),
    Flag("subwords", "without --text-of: how words were split (none)", choices=SUBWORDS),
    Flag("subword_file", "merges, model of SentencePiece, or tokenizer", "FILE"),
)


def prepared(wanted: Wanted) -> Tuple[Wanted, Optional[Subwords], Search]:
    """An export with the file of the checkpoint, how its text was prepared, and its search.

    Args:
        wanted: its path can be a model folder, which says all of it.

    Raises:
        UsageError: a folder does not say it, or flags contradict each other.
    """
    if os.path.isdir(wanted.path):
        folder = read_model_folder(wanted.path, "export")
        if folder.checkpoint is None:
            raise UsageError(f"{wanted.path}: has no {CHECKPOINT}; pack the checkpoint")
        said = {
            "data": wanted.path,
            "source_lang": folder.text.source_lang,
            "target_lang": folder.text.target_lang,
            **({} if wanted.get("subwords") else {"text_of": wanted.path}),
        }
        found = wanted._replace(path=folder.checkpoint, options={**said, **wanted.options})
        return found, subwords_of(found), folder.search
    return wanted, subwords_of(wanted), SEARCH


def subwords_of(wanted: Wanted) -> Optional[Subwords]:
    """The preparation of text that the flags of an export name; None if they name none.

    Raises:
        UsageError: as :func:`prepared`.
    """
    kind, file, folder = map(wanted.get, ("subwords", "subword_file", "text_of"))
    if folder is not None:
        if kind is not None or file is not None:
            raise UsageError(f"--text-of {folder}: give it without --subwords and --subword-file")
        model = read_model_folder(folder, "--text-of")
        names = (model.text.subword_file, model.text.target_subword_file or model.text.subword_file)
        return Subwords(model.text, *(None if n is None else model.file(n) for n in names))
    if kind is None and file is None:
        return None
    if kind is None or (SUBWORD_FILES[kind] is None) != (file is None):
        raise UsageError(
            f"--subword-file {file}: belongs to --subwords subword-nmt, sentencepiece or "
            f"transformers, which need one; --subwords is {kind}"
        )
    return Subwords(Text(subwords=kind, subword_file=file), file, file)
