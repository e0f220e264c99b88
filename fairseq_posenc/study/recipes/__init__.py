"""The recipes of studies: what is trained, and how it is scored."""

from importlib import import_module
from typing import Dict

from fairseq_posenc.study.plan import RECIPE_NAMES
from fairseq_posenc.study.recipes.base import Recipe

RECIPES: Dict[str, Recipe] = {
    name: import_module(f"{__name__}.{name}").RECIPE for name in RECIPE_NAMES
}
