"""What the entries of a checkpoint have to be, checked where a file is read."""

import reprlib
from argparse import Namespace
from typing import Any, Callable, Dict, Mapping, Optional, Tuple

from fairseq.dataclass.configs import FairseqConfig
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.checkpoints.archive import remedy
from fairseq_posenc.configuration.fields import plug_in_flags
from fairseq_posenc.configuration.stock import COUNTS, STOCK_RANGES

#: A test of a value, and what passes it in words.
Rule = Tuple[Callable[[Any], bool], str]
_Place = Tuple[str, ...]


def _type(words: str, *types: type) -> Rule:
    return lambda value: isinstance(value, types), words


def _count(bounds: Mapping[str, Any]) -> Rule:
    at_least, at_most = bounds["at_least"], bounds["at_most"]

    def passes(value: Any) -> bool:
        if isinstance(value, str):
            return value.startswith("[")  # one number a layer, in fairseq's convolutional models
        return value is None or (isinstance(value, int) and at_least <= value <= at_most)

    return passes, f"a whole number from {at_least} to {at_most}"


def _is_model(settings: Any) -> bool:
    by_name = vars(settings) if isinstance(settings, Namespace) else settings
    return isinstance(by_name, dict) and any(
        isinstance(by_name.get(name), str) for name in ("_name", "arch")
    )


_NONE = type(None)
_SETTINGS = _type("settings by name", dict, Namespace)
_DICTIONARY = _type("a dictionary", dict)
_OPTIONAL = _type("a dictionary or None", dict, _NONE)
_WHOLE = _type("a whole number", int)
_NUMBER = _type("a number or None", int, float, _NONE)

#: The rules by place, from a whole to its parts; what a file lacks is not checked.
_RULES: Dict[_Place, Rule] = {
    ("args",): (
        lambda args: args is None or _is_model(args),
        "the settings of a model with its name, or None",
    ),
    ("cfg",): (
        lambda cfg: cfg is None or (isinstance(cfg, dict) and "model" in cfg),
        "settings by group, with those of 'model'",
    ),
    **{
        ("cfg", group): _type("settings by name, or None", dict, Namespace, _NONE)
        for group in FairseqConfig.__dataclass_fields__
        if group != "_name"
    },
    ("cfg", "model"): (_is_model, "the settings of a model, with its name"),
    ("cfg", "task"): _SETTINGS,
    **{
        (*place, name): _count(COUNTS[name]) if name in COUNTS else _NUMBER
        for place in (("args",), ("cfg", "model"))
        for name in STOCK_RANGES
    },
    ("optimizer_history",): (
        lambda history: isinstance(history, list) and bool(history),
        "a list, with an entry for each optimizer",
    ),
    ("optimizer_history", "-1"): _DICTIONARY,
    ("optimizer_history", "-1", "num_updates"): _WHOLE,
    ("last_optimizer_state",): _OPTIONAL,
    ("task_state",): _OPTIONAL,
    ("extra_state",): _DICTIONARY,
    # several processes write their sums as tensors
    ("extra_state", "previous_training_time"): _type("a number", int, float, Tensor),
    ("extra_state", "train_iterator"): _OPTIONAL,
    ("extra_state", "train_iterator", "epoch"): _WHOLE,
    ("extra_state", "train_iterator", "iterations_in_epoch"): _WHOLE,
    ("extra_state", "fairseq_posenc"): _OPTIONAL,
    ("extra_state", "fairseq_posenc", "dictionaries"): _DICTIONARY,
}
#: The rules of the plug-in's own flags, by their types.
_BY_TYPE: Dict[Any, Rule] = {
    Optional[int]: _type("a whole number or None", int, _NONE),
    Optional[float]: _NUMBER,
}


def check_entries(checkpoint: Mapping[str, Any], path: str) -> None:
    """Refuse a checkpoint with an entry that is not what fairseq writes.

    Args:
        path: the file that it was read from.
    """
    own: Dict[_Place, Rule] = {
        ("cfg", "model", name): _BY_TYPE[flag.type]
        for name, flag in plug_in_flags().items()
        if flag.type in _BY_TYPE
    }
    for place, (passes, words) in {**_RULES, **own}.items():
        try:
            value = _at(checkpoint, place)
        except LookupError:
            continue
        if not passes(value):
            raise UsageError(
                f"{path}: its entry {'.'.join(place)} is {reprlib.repr(value)}, and has to be "
                f"{words}; {remedy(path)}"
            )


def _at(value: Any, place: _Place) -> Any:
    """The entry at *place*; LookupError if there is none."""
    for name in place:
        if isinstance(value, Namespace):
            value = vars(value)
        if not isinstance(value, (dict, list)):
            raise LookupError(name)
        value = value[int(name)] if isinstance(value, list) else value[name]
    return value
