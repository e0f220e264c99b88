"""Loading a model folder from Python."""

from typing import Callable, Dict, Union

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.serving.language_model import LanguageModel
from fairseq_posenc.serving.masked_lm import MaskedLanguageModel
from fairseq_posenc.serving.model_folder import ModelFolder, read_model_folder
from fairseq_posenc.serving.translation import TranslationModel

PretrainedModel = Union[TranslationModel, MaskedLanguageModel, LanguageModel]
#: By the task of the model.
_CLASSES: Dict[str, Callable[[ModelFolder, str], PretrainedModel]] = {
    "translation": TranslationModel,
    "masked_lm": MaskedLanguageModel,
    "masked_lm_pairs": MaskedLanguageModel,
    "sentence_prediction": MaskedLanguageModel,
    "language_modeling": LanguageModel,
    "language_modeling_with_memory": LanguageModel,
}


def load_folder(path: str, device: str) -> PretrainedModel:
    """Load a model folder; see :func:`fairseq_posenc.from_pretrained`."""
    folder = read_model_folder(path, "from_pretrained")
    if folder.task not in _CLASSES:
        raise UsageError(
            f"from_pretrained {path}: holds a model of --task {folder.task}; it can be one of "
            f"{', '.join(_CLASSES)}"
        )
    return _CLASSES[folder.task](folder, device)
