"""The checkpoint of a model folder, loaded as fairseq's commands do."""

from typing import Any, Dict, List, NamedTuple

import torch
from fairseq import checkpoint_utils, utils
from fairseq.data import Dictionary
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.serving.engine import Tokens
from fairseq_posenc.serving.model_folder import ModelFolder


class Loaded(NamedTuple):
    """A model with its task, on a device.

    Args:
        folder: where it comes from.
        model: in evaluation mode.
        task: with the dictionaries.
        device: where the model is.
    """

    folder: ModelFolder
    model: Any
    task: Any
    device: str = "cpu"

    def move(self, sample: Any) -> Any:
        """The tensors of *sample* on the device of the model."""
        return utils.apply_to_sample(lambda tensor: tensor.to(self.device), sample)


def load(folder: ModelFolder, device: str = "cpu") -> Loaded:
    """Load the checkpoint of a model folder, with its heads.

    Raises:
        UsageError: there is none, it cannot be loaded, or the device cannot be used.
    """
    if folder.checkpoint is None:
        raise UsageError(
            f"{folder.path}: has a model for CTranslate2 only, which `translate` reads; pack the "
            "checkpoint for the rest"
        )
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise UsageError(f"device {device}: PyTorch finds no CUDA device here; cpu works")
    models, _, task = checkpoint_utils.load_model_ensemble_and_task(
        [folder.checkpoint], arg_overrides=overrides_of(folder)
    )
    return Loaded(folder, models[0].eval().to(device), task, device)


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


def tokens_of(dictionary: Dictionary, numbers: Tensor) -> List[str]:
    """The symbols of numbers (T,)."""
    return [dictionary[number] for number in numbers.tolist()]
