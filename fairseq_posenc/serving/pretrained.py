"""Loading a model folder from Python, by this package or by fairseq's own ``from_pretrained``.

``MODEL_REGISTRY["posenc_lm"].from_pretrained(FOLDER)`` takes checkpoint, dictionaries, languages
and the preparation of text from a model folder, without downloads.  The preparation is a ``bpe`` of
fairseq, so its hub interfaces apply it.
"""

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Callable, Dict, Optional, Union

import torch
from fairseq.data.encoders import register_bpe
from fairseq.dataclass import FairseqDataclass

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.checkpoints.loader import checked_device
from fairseq_posenc.serving.inputs import overrides_of
from fairseq_posenc.serving.model_folder import CHECKPOINT, SETTINGS, ModelFolder, read_model_folder
from fairseq_posenc.serving.preparation import Preparation

if TYPE_CHECKING:
    from fairseq_posenc.serving.language_model import LanguageModel
    from fairseq_posenc.serving.masked_lm import MaskedLanguageModel
    from fairseq_posenc.serving.question_answering import ChoiceModel, SpanModel
    from fairseq_posenc.serving.translation import TranslationModel

PretrainedModel = Union[
    "TranslationModel", "MaskedLanguageModel", "LanguageModel", "SpanModel", "ChoiceModel"
]


def load_folder(path: str, device: Union[str, torch.device]) -> PretrainedModel:
    """Load a model folder; see :func:`fairseq_posenc.from_pretrained`."""
    from fairseq_posenc.serving.language_model import LanguageModel
    from fairseq_posenc.serving.masked_lm import MaskedLanguageModel
    from fairseq_posenc.serving.question_answering import ChoiceModel, SpanModel
    from fairseq_posenc.serving.translation import TranslationModel

    classes: Dict[str, Callable[[ModelFolder, str], PretrainedModel]] = {
        "translation": TranslationModel,
        "masked_lm": MaskedLanguageModel,
        "masked_lm_pairs": MaskedLanguageModel,
        "sentence_prediction": MaskedLanguageModel,
        "language_modeling": LanguageModel,
        "language_modeling_with_memory": LanguageModel,
        "span_prediction": SpanModel,
        "sentence_ranking": ChoiceModel,
    }
    folder = read_model_folder(path, "from_pretrained")
    if folder.task not in classes:
        raise UsageError(
            f"from_pretrained {path}: holds a model of --task {folder.task}; it can be one of "
            f"{', '.join(classes)}"
        )
    return classes[folder.task](folder, checked_device(device))


BPE = "model_folder"
_SHOWN = "from_pretrained"
#: The BPE that fairseq's RoBERTa downloads unless told otherwise.
_DEFAULT = "gpt2"


@dataclass
class ModelFolderBPEConfig(FairseqDataclass):
    """The setting of :class:`ModelFolderBPE`."""

    model_folder: str = field(
        default="", metadata={"help": "folder that `fairseq-posenc pack` wrote"}
    )


@register_bpe(BPE, dataclass=ModelFolderBPEConfig)
class ModelFolderBPE:
    """The text preparation of a model folder: words and subwords.

    Args:
        cfg: names the folder.
    """

    def __init__(self, cfg: ModelFolderBPEConfig) -> None:
        folder = read_model_folder(cfg.model_folder, f"--bpe {BPE}")
        self._text = Preparation(folder.text, folder.path)

    def encode(self, text: str) -> str:
        """The symbols of a text of the source language, separated by spaces."""
        return " ".join(self._text.source(text))

    def decode(self, symbols: str) -> str:
        """The text of symbols of the target language."""
        return self._text.restore(symbols.split())


def read_model_folders(from_pretrained: Callable[..., Any]) -> Callable[..., Any]:
    """Let fairseq's ``from_pretrained`` read model folders."""

    def wrapper(
        model_name_or_path: str,
        checkpoint_file: str = "model.pt",
        data_name_or_path: str = ".",
        archive_map: Optional[Dict[str, Any]] = None,
        **settings: Any,
    ) -> Any:
        path = str(model_name_or_path)
        if os.path.isfile(os.path.join(path, SETTINGS)):
            if settings.get("bpe") in (None, "", _DEFAULT):
                settings.pop("bpe", None)
            known = overrides_of(read_model_folder(path, _SHOWN))
            settings = {**known, "bpe": BPE, "model_folder": path, **settings}
            data_name_or_path = settings.pop("data")
            checkpoint_file = CHECKPOINT if checkpoint_file == "model.pt" else checkpoint_file
        elif settings.get("bpe") == "":  # not given to a masked language model
            raise UsageError(
                f"{_SHOWN} {path}: is no model folder, so how its text was split is unknown; "
                "give the folder that `fairseq-posenc pack` wrote, or bpe= (subword_nmt with "
                "bpe_codes=, sentencepiece with sentencepiece_model=, None for tokens by number, "
                "or gpt2, which fairseq downloads)"
            )
        return from_pretrained(
            path, checkpoint_file, data_name_or_path, archive_map=archive_map, **settings
        )

    return wrapper
