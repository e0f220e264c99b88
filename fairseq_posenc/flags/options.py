"""Access to settings in fairseq's formats, and the former names of flags and values."""

import re
from argparse import Namespace
from typing import Any, Dict, Mapping

#: The sides of a model, as in the names of flags and parameters.
SIDES = ("encoder", "decoder")

#: Settings as attributes: an ``argparse.Namespace``, a ``DictConfig`` or a fairseq dataclass.
Options = Any
#: A layer or model of fairseq, whose modules and dropouts are attributes.
Layer = Any


def option(options: Options, name: str, default: Any = None) -> Any:
    """A setting by its name, or *default* if the configuration does not have it.

    Older checkpoints, other tasks and commands other than training lack some of the flags.
    """
    return getattr(options, name, default)


def by_name(settings: Any) -> Dict[str, Any]:
    """Settings (a namespace, dictionary or ``DictConfig``) in a new dictionary; empty for None."""
    if isinstance(settings, Namespace):
        return dict(vars(settings))
    # items() of OmegaConf 2.0 fails if a setting is a Namespace
    return {name: settings.get(name) for name in settings or ()}


#: The current names of flags, by former name.
NAMES = {"shaw_distance": "shaw_max_distance", "deberta_distance": "deberta_max_distance"}
_ENCODINGS = {"separate": "bert_ad"}
#: For each flag: the current names in its values, by former name.
VALUES: Dict[str, Dict[str, str]] = {
    "position_encoding": _ENCODINGS,
    "encoder_position_encoding": _ENCODINGS,
    "decoder_position_encoding": _ENCODINGS,
    "norm": {"unit": "rms"},
    "init_weights": {"usual": "default"},
}


def modernised(settings: Mapping[str, Any]) -> Dict[str, Any]:
    """Changes that bring older settings to current names and values; former names become None.

    >>> modernised({"norm": "unit", "shaw_distance": 3, "position_encoding": "separate*3,none"})
    {'shaw_distance': None, 'shaw_max_distance': 3, 'position_encoding': 'bert_ad*3,none', \
'norm': 'rms'}
    """
    changes: Dict[str, Any] = {}
    for former, name in NAMES.items():
        if settings.get(former) is not None:
            changes[former] = None
            if settings.get(name) is None:
                changes[name] = settings[former]
    for name, values in VALUES.items():
        value = settings.get(name)
        if isinstance(value, str):  # names end at blanks, commas, plus signs and asterisks
            words = re.split(r"([\s,+*]+)", value)
            present = "".join([values.get(word, word) for word in words])
            changes.update({name: present} if present != value else {})
    return changes
