"""What the models of model folders read: the checkpoint, texts by number, batches, checks."""

from typing import Any, Dict, List, Optional, Sequence

import torch
from fairseq.data import Dictionary
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.checkpoints import loader
from fairseq_posenc.serving.model_folder import CHECKPOINT, ModelFolder
from fairseq_posenc.serving.translate import Tokens


def checkpoint_of(folder: ModelFolder) -> str:
    """The checkpoint of a model folder.

    Raises:
        UsageError: there is none, or it is not the one that was packed.
    """
    if folder.checkpoint is None:
        raise UsageError(
            f"{folder.path}: has a model for CTranslate2 only, which `translate` reads; pack the "
            "checkpoint for the rest"
        )
    folder.check(folder.path, CHECKPOINT)
    return folder.checkpoint


def load(folder: ModelFolder, device: str = "cpu") -> loader.Loaded:
    """Load the checkpoint of a model folder, with its heads.

    Raises:
        UsageError: there is none, it cannot be loaded, or the device cannot be used.
    """
    return loader.load(checkpoint_of(folder), overrides=overrides_of(folder), device=device)


def overrides_of(folder: ModelFolder) -> Dict[str, Any]:
    """The settings of a checkpoint that its model folder replaces: data, languages, heads."""
    text = folder.text
    named = {"source_lang": text.source_lang, "target_lang": text.target_lang}
    found = {name: lang for name, lang in named.items() if lang is not None}
    heads = {} if folder.head is None else {"load_checkpoint_heads": True}
    return {"data": folder.path, **found, **heads}


def numbers_of(dictionary: Dictionary, tokens: Tokens, end: bool = False) -> Tensor:
    """Tokens by number (T,), with </s> at the end on request."""
    numbers = [dictionary.index(token) for token in tokens]
    return torch.tensor(numbers + ([dictionary.eos()] if end else []), dtype=torch.long)


def batches_by_tokens(
    lengths: Sequence[int], limit: int, groups: Optional[Sequence[int]] = None
) -> List[List[int]]:
    """Numbers of texts, those of similar length together.

    >>> batches_by_tokens([5, 2, 3, 9], 6)
    [[1, 2], [0], [3]]

    Args:
        lengths: tokens of each text.
        limit: largest number of tokens in a batch, padding included, unless one text has more.
        groups: only texts of the same group share a batch.
    """
    of = groups or [0] * len(lengths)
    batches: List[List[int]] = []
    for number in sorted(range(len(lengths)), key=lambda n: (of[n], lengths[n])):
        last = batches[-1] if batches else []
        if last and of[last[0]] == of[number] and (len(last) + 1) * lengths[number] <= limit:
            last.append(number)
        else:
            batches.append([number])
    return batches


def refuse_too_long(texts: Sequence[Tensor], longest: int, function: str) -> None:
    """Refuse texts that the model does not accept.

    Args:
        texts: numbers of tokens (T,) of each.
        longest: the largest T.
    """
    for number, text in enumerate(texts):
        if len(text) > longest:
            raise UsageError(
                f"{function}: text {number} of the list has {len(text)} tokens, and the model "
                f"accepts {longest}; split it"
            )
