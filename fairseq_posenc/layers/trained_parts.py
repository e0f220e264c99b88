"""The parts of a model that a training changes, and validation before its first update.

A model that is given another position encoding has most of its parameters already.  Training the
attention alone keeps them, as in arXiv 2408.11382, which gives trained translation models other
encodings.
"""

import re
from dataclasses import dataclass
from typing import Callable, Dict, Optional

from fairseq_posenc.flags.settings import setting
from fairseq_posenc.layers.parameters import in_attention

#: The names, in a stack or a layer, of modules that hold the state of positions.
POSITION_STATE = r"(embed_positions|position_(bias|map|terms|vectors)(_\d+)?)"
_POSITIONS = re.compile(rf"\.{POSITION_STATE}\.")
_IN_LAYER = re.compile(r"\.layers\.\d+\.(.*)")


def _of_encoding(name: str) -> bool:
    return _POSITIONS.search(name) is not None


def _of_attention(name: str) -> bool:
    layer = _IN_LAYER.search(name)
    return _of_encoding(name) or (layer is not None and in_attention(layer.group(1)))


#: Tests of a parameter's name in a model, by the value of the flag: is the parameter trained?
PARTS: Dict[str, Callable[[str], bool]] = {
    "all": lambda name: True,
    "attention": _of_attention,
    "encoding": _of_encoding,
}


@dataclass
class TrainingFlags:
    """Flags of a training that starts from a model with another position encoding."""

    train_only: Optional[str] = setting(
        "all",
        "parts of the model that are trained, {choices}: attention is every attention with its "
        "layer norm and the position encoding; heads for fine-tuning are trained in any case",
        role="training",
        choices=PARTS,
    )
    validate_at_start: Optional[bool] = setting(
        False,
        "also validate before the first update, to see what another position encoding costs",
        role="training",
    )
