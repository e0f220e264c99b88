"""Inputs of the analysis: the encoder of a checkpoint, and sequences of a text."""

from argparse import Namespace
from functools import partial
from itertools import islice
from typing import Any, Callable, Iterator, NamedTuple, Optional

import torch
from fairseq.data import Dictionary
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.checkpoints.loader import (
    BareTask,
    Sized,
    find_dictionary,
    read_dictionary,
    rebuild,
)
from fairseq_posenc.checkpoints.reading import model_settings, read_checkpoint
from fairseq_posenc.stacks.encoder import TransformerEncoder


class Model(NamedTuple):
    """An encoder, a function that runs it on tokens (B, T), and its dictionary."""

    encoder: TransformerEncoder
    run: Callable[[Tensor], Any]
    dictionary: Dictionary


#: The task of a model, by the name of its only encoder.
TASKS = {"encoder.sentence_encoder": "masked_lm", "encoder": "translation"}


def load(path: str, dict_path: Optional[str]) -> Model:
    """Load the encoder of a checkpoint in evaluation mode.

    Args:
        path: the checkpoint.
        dict_path: its dictionary, if it is neither beside it nor in its training data.

    Raises:
        UsageError: a file cannot be read, they do not match, or the model is not of this plug-in.
    """
    checkpoint = read_checkpoint(path)
    settings, state = model_settings(checkpoint), checkpoint["model"]
    if "position_encoding" not in settings:
        raise UsageError(f"{path}: was not trained with this plug-in (it names no encoding)")
    attention = settings.get("attention", "softmax")
    if attention != "softmax":
        raise UsageError(f"{path}: --attention {attention} computes no attention matrices")
    if settings.get("gau_chunk"):
        raise UsageError(f"{path}: --gau-chunk computes no matrices of all tokens")
    if settings.get("funnel_stages") is not None:
        raise UsageError(
            f"{path}: --funnel-stages {settings['funnel_stages']}: layers of pooled tokens have "
            "matrices of several sizes; give a model whose layers all see the same tokens"
        )
    names = [name for name in TASKS if f"{name}.embed_tokens.weight" in state]
    if not names:
        raise UsageError(
            f"{path}: has no single encoder (its first parameter is {next(iter(state))}); give a "
            "checkpoint of a masked language model, or of a translation model for one pair"
        )
    name = names[0]
    rows = len(state[f"{name}.embed_tokens.weight"])
    dictionary = read_symbols(dict_path or find_dictionary(path, checkpoint, "--dict"), rows, path)
    cfg = Namespace(_name=TASKS[name])
    if TASKS[name] == "masked_lm":
        model = rebuild(checkpoint, BareTask(cfg, dictionary))
        return Model(model.encoder.sentence_encoder, partial(model, features_only=True), dictionary)
    shared = settings.get("share_all_embeddings")
    target = None if shared else Sized(len(state["decoder.embed_tokens.weight"]))
    encoder = rebuild(checkpoint, BareTask(cfg, dictionary, target)).encoder
    return Model(encoder, encoder, dictionary)


def read_symbols(dict_path: str, rows: int, path: str) -> Dictionary:
    """Read a dictionary that matches the *rows* of embeddings in the checkpoint at *path*."""
    symbols = read_dictionary(dict_path).symbols  # with <mask>, which translation does not use
    if rows not in (len(symbols), len(symbols) - 1):
        raise UsageError(
            f"{dict_path}: has {len(symbols) - 1} symbols, including those of fairseq, but {path} "
            f"has {rows} token embeddings; give its dictionary with --dict"
        )
    dictionary = Dictionary()
    for symbol in symbols[len(dictionary) : rows]:
        dictionary.add_symbol(symbol)
    return dictionary


def read_text(path: str, dictionary: Dictionary) -> Iterator[int]:
    """The tokens of a text file, with </s> after each line."""
    try:
        with open(path, encoding="utf-8") as lines:
            for line in lines:
                yield from dictionary.encode_line(line, add_if_not_exist=False).tolist()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read as UTF-8 text ({error})") from None


def pack(path: str, model: Model, length: int, count: int) -> Tensor:
    """The first *count* sequences of a text, or fewer if it is too short.

    Args:
        path: the text file.
        model: the model that reads them.
        length: T.
        count: the most sequences to return.

    Returns:
        tokens (count, T).

    Raises:
        UsageError: the text is too short for one, or most tokens are unknown.
    """
    dictionary = model.dictionary
    start = [dictionary.bos()] if model.encoder.encoding.stack.has_cls else []
    body = length - len(start)
    tokens = list(islice(read_text(path, dictionary), body * count))
    if len(tokens) < body:
        raise UsageError(
            f"{path}: has {len(tokens)} tokens, including ends of lines, and one sequence needs "
            f"{body}; give more text, or a smaller --length than {length}"
        )
    unknown = tokens.count(dictionary.unk()) / len(tokens)
    if unknown > 0.5:
        raise UsageError(
            f"{path}: {unknown:.0%} of its tokens are not in the dictionary; give text with the "
            "BPE of the training data, or its dictionary with --dict"
        )
    whole = len(tokens) // body
    return torch.tensor([start + tokens[i * body : (i + 1) * body] for i in range(whole)])
