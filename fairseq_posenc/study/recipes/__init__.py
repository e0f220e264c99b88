"""The recipes of studies: what is trained, and how it is scored."""

from typing import Dict

from fairseq_posenc.study.recipes import (
    documents,
    generated,
    language_model,
    masked_lm,
    translation,
)
from fairseq_posenc.study.recipes.base import Recipe

RECIPES: Dict[str, Recipe] = {
    "translation": translation.RECIPE,
    "masked_lm": masked_lm.RECIPE,
    "language_model": language_model.RECIPE,
    "generated": generated.RECIPE,
    "documents": documents.RECIPE,
}
